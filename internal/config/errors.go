package config

import "errors"

var (
	// ErrNoConfig is returned when the main configuration file does not exist and Sources.AllowMissing is not set.
	ErrNoConfig = errors.New("no configuration file")

	// ErrCredentialExposed is returned when others than the owner could use the credential file.
	ErrCredentialExposed = errors.New("credential file is open to others")

	// ErrCredentialFile is returned when the credential file is empty, too large or no regular file.
	ErrCredentialFile = errors.New("not a usable credential file")
)
