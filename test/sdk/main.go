// Command sdk is a peer built with the official Go SDK. Its first argument selects what it does:
//
//	serve                    it is a server over HTTP; see serve.go
//	restart SPEC             it is a client that outlives its server; see restart.go
//	signin URL               it is a client that signs in; see signin.go
//	challenge HEADER...      it prints the challenges in WWW-Authenticate headers
//	metadata PAGE RESOURCE   it reads the metadata of a protected resource from a page, and prints it
//	inputs JSON              it reads the questions in a result, and prints their names
//
// The last three print JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"maps"
	"net/http"
	"os"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

func main() {
	log.SetFlags(0)
	commands := map[string]func([]string) error{
		"serve": serve, "restart": restart, "signin": signin, "challenge": challenge, "metadata": metadata, "inputs": inputs,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		log.Fatal("sdk: unknown command")
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		log.Fatalf("sdk: %v", err)
	}
}

func challenge(headers []string) error {
	all, err := oauthex.ParseWWWAuthenticate(headers)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

func metadata(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: sdk metadata PAGE RESOURCE")
	}
	meta, err := oauthex.GetProtectedResourceMetadata(context.Background(), args[0], args[1], &http.Client{})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(meta)
}

func inputs(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: sdk inputs JSON")
	}
	var read mcp.InputRequestMap
	if err := read.UnmarshalJSON([]byte(args[0])); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(slices.Sorted(maps.Keys(read)))
}
