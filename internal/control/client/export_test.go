package client

import "io"

// DialError and NewEvents are tested without a connection.
var DialError = dialError

func NewEvents(body io.ReadCloser) *Events { return newEvents(body) }
