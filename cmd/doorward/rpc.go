package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/doorward/doorward/client"
)

// rpcFailure gives a JSON-RPC error its exit status. With --json its data is printed as it is,
// otherwise as a text.
func rpcFailure(err error, asJSON bool) error {
	var rpc *client.RPCError
	if !errors.As(err, &rpc) {
		return err
	}
	if !asJSON {
		err = errors.New(rpcText(rpc))
	}
	if rpc.Code == 1403 {
		return &failure{status: exitRefused, err: err}
	}
	if rpc.Message == "Unknown server" {
		err = fmt.Errorf("%w; doorward tools lists the servers that you may use, and doorward status all", err)
	}
	return &failure{status: exitFailed, err: err}
}

// rpcText returns a JSON-RPC error as one line: message, code, reason and the number of its
// record. Data that is not Doorward's own follows as JSON.
func rpcText(e *client.RPCError) string {
	text := fmt.Sprintf("%s (%d)", e.Message, e.Code)
	var own struct {
		Reason, Detail string
		Ref            uint64
	}
	d := json.NewDecoder(bytes.NewReader(e.Data))
	d.DisallowUnknownFields()
	if len(e.Data) > 0 && d.Decode(&own) != nil {
		return oneLine(text + ": " + string(e.Data))
	}
	for _, more := range []string{own.Reason, own.Detail} {
		if more != "" {
			text += ": " + more
		}
	}
	if own.Ref > 0 {
		text += fmt.Sprintf(" (record %d)", own.Ref)
	}
	return oneLine(text)
}

// oneLine returns a text with each run of blanks and line breaks as one space.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
