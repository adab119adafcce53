// Package spelling finds the word that a person most likely meant. It is pure.
package spelling

import "strings"

// Nearest returns the candidate with the smallest edit distance to word. Beyond a third of the letters (at least two)
// a likeness is an accident, and it returns "".
func Nearest(word string, candidates []string) string {
	const longest = 64 // longer words are no misspelling of ours, and the distance costs their product
	if word == "" || len(word) > longest {
		return ""
	}
	best, bestDist := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(word), c); d < bestDist {
			best, bestDist = c, d
		}
	}
	// Two short words of the same length and without a common letter have a small distance as well.
	if bestDist >= min(len(word), len(best)) {
		return ""
	}
	return best
}

// editDistance counts insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
func editDistance(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	before, prev := make([]int, len(rb)+1), make([]int, len(rb)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(ra); i++ {
		row := make([]int, len(rb)+1)
		row[0] = i
		for j := 1; j <= len(rb); j++ {
			cost := 1
			if ra[i-1] == rb[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(rb)]
}
