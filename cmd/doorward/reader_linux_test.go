package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// reads is `stranger reads SOCK [TOKEN]`: a program that gets its instructions itself. It
// makes a session, which is bound to it, reads with it and with TOKEN, prints each answer
// and stays. A started agent sends its own bearer token too.
func reads(sock string, tokens []string) error {
	c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", sock) }}}
	ask := func(method, path, session string) (string, error) {
		r, err := http.NewRequest(method, "http://doorward"+path, nil)
		if err != nil {
			return "", err
		}
		if own, err := os.ReadFile(os.Getenv("DOORWARD_TOKEN_FILE")); err == nil {
			r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(own)))
		}
		if session != "" {
			r.Header.Set("Doorward-Session", session)
		}
		resp, err := c.Do(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		fmt.Println(resp.StatusCode, strings.TrimSpace(string(body)))
		return string(body), err
	}
	answer, err := ask(http.MethodPost, "/auth/session", "")
	if err != nil {
		return err
	}
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(answer), &made); err != nil {
		return err
	}
	for _, token := range append([]string{made.Token}, tokens...) {
		if _, err := ask(http.MethodGet, "/auth/instructions", token); err != nil {
			return err
		}
	}
	fmt.Println("stays")
	deaf()
	select {}
}
