package attachment

import (
	"strconv"
	"strings"
	"unicode"
)

// unprintable accepts what could move the cursor, colour the terminal, reorder the line or hide: controls, format
// characters (bidirectional overrides, zero width), separators, private use and surrogates, and the backslash that the
// escapes are written with.
func unprintable(r rune) bool {
	return r == '\\' || !unicode.IsPrint(r)
}

func escape(r rune) string {
	if r == '\\' {
		return `\\`
	}
	return strings.Trim(strconv.QuoteRuneToASCII(r), "'")
}
