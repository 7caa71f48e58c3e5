//go:build linux

// Idler is a minimal stdio server that keeps an MCP session open. The benchmark starts a thousand
// of them to measure the memory of the daemon: a thousand SDK servers would fill the machine with
// memory that is not counted. It answers initialize and tools/list, refuses other requests, and
// ends with its stdin.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
)

const (
	initResult = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench-idler","version":"1"}}`
	listResult = `{"tools":[]}`
)

func main() {
	in := bufio.NewReaderSize(os.Stdin, 4<<10)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		answer(line)
	}
}

// answer serves one message. It looks for member names in the text instead of parsing JSON: its only peer
// is the benchmark's proxy, and the parser of the standard library would double its memory.
func answer(line []byte) {
	id := rawID(line)
	switch {
	case id == nil:
	case bytes.Contains(line, []byte(`"initialize"`)):
		reply(id, "result", initResult)
	case bytes.Contains(line, []byte(`"tools/list"`)):
		reply(id, "result", listResult)
	default:
		reply(id, "error", `{"code":-32601,"message":"method not found"}`)
	}
}

func reply(id []byte, member, value string) {
	fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","id":%s,"%s":%s}`+"\n", id, member, value)
}

// rawID returns the text of the id member, nil when the message is a notification.
func rawID(line []byte) []byte {
	_, rest, found := bytes.Cut(line, []byte(`"id":`))
	if !found {
		return nil
	}
	rest = bytes.TrimLeft(rest, " ")
	if end := bytes.IndexAny(rest, ",}"); end > 0 {
		return bytes.TrimSpace(rest[:end])
	}
	return nil
}
