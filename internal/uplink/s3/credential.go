package s3

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fieldgw/fieldgw/internal/remote"
)

// ParseCredential reads keys as a file of AWS credentials names them, or as variables of the environment do: lines NAME=VALUE
// with the names access_key_id, secret_access_key and session_token, in either case, with or without aws_ before them; above
// them there may be one [profile]. Lines that begin with # or ; are comments. Errors wrap remote.ErrBadCredential and contain
// nothing of the text.
func ParseCredential(text string) (aws.Credentials, error) {
	var keys aws.Credentials
	into := map[string]*string{
		"access_key_id": &keys.AccessKeyID, "secret_access_key": &keys.SecretAccessKey, "session_token": &keys.SessionToken,
	}
	begun := false
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' && line[len(line)-1] == ']' && !begun {
			begun = true
			continue
		}
		begun = true
		name, value, ok := strings.Cut(line, "=")
		field := into[strings.TrimPrefix(strings.ToLower(strings.TrimSpace(name)), "aws_")]
		value = strings.TrimSpace(value)
		switch {
		case !ok || field == nil:
			return aws.Credentials{}, badCredential(number, "it is none of access_key_id=, secret_access_key= and session_token=")
		case *field != "":
			return aws.Credentials{}, badCredential(number, "it says a second time what a line above it says")
		case value == "" || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }):
			return aws.Credentials{}, badCredential(number, "its value is not one word of printable ASCII")
		}
		*field = value
	}
	if keys.AccessKeyID == "" || keys.SecretAccessKey == "" {
		return aws.Credentials{}, fmt.Errorf("%w: it needs access_key_id=… and secret_access_key=…", remote.ErrBadCredential)
	}
	return keys, nil
}

func badCredential(number int, why string) error {
	return fmt.Errorf("%w: line %d: %s", remote.ErrBadCredential, number+1, why)
}
