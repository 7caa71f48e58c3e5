package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/doorward/doorward/test/doortest"
)

// cmdProvider starts an MCP server that wants OAuth tokens, or changes one:
//
//	provider NAME            sets NAME to its address and writes NAME.pem, which SSL_CERT_FILE=$WORK/NAME.pem trusts
//	provider NAME set MODE   how it answers; see doortest.Provider
//	provider NAME seen       prints every request that it got
//	provider NAME await RE   until one of them matches
func cmdProvider(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) > 0 && len(args) <= 3, "provider NAME [set MODE | seen | await RE]")
	s := stageOf(ts)
	if len(args) == 1 {
		p, err := doortest.NewProvider()
		ts.Check(err)
		ts.Defer(p.Close)
		s.providers[args[0]] = p
		ts.Setenv(args[0], p.URL)
		ts.Check(os.WriteFile(ts.MkAbs(args[0]+".pem"), p.CA, 0o600))
		return
	}
	p := s.providers[args[0]]
	switch {
	case p != nil && args[1] == "set" && len(args) == 3:
		p.Set(args[2])
	case p != nil && args[1] == "seen":
		fmt.Fprint(ts.Stdout(), p.Seen())
	case p != nil && args[1] == "await" && len(args) == 3:
		re := pattern(ts, args[2])
		if !poll(10*time.Second+late(), func() bool { return re.MatchString(p.Seen()) }) {
			ts.Fatalf("no request matches %s:\n%s", args[2], p.Seen())
		}
	default:
		ts.Fatalf("no provider %s, or not that: %v", args[0], args[1:])
	}
}

// cmdLogin runs `doorward login`, opens the address that it prints as the
// person would, and expects the exit status:
//
//	login STATUS PROVIDER [VAR=VALUE…] SERVER [FLAG…]
func cmdLogin(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) >= 3 && stageOf(ts).providers[args[1]] != nil, "login STATUS PROVIDER [VAR=VALUE…] SERVER [FLAG…]")
	pairs, rest := cutPairs(args[2:])
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second+late())
	defer cancel()
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, program(ts, "doorward"), append([]string{"login"}, rest...)...)
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.WaitDelay = ts.MkAbs("."), environment(ts, pairs), &stderr, 10*time.Second
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	r := bufio.NewReader(out)
	address, _ := r.ReadString('\n') // none when it failed before
	if address = strings.TrimSpace(address); address != "" {
		status, err := stageOf(ts).providers[args[1]].Browse(address)
		fmt.Fprintln(ts.Stdout(), address)
		fmt.Fprintln(ts.Stdout(), "browser:", status, err)
	}
	_, err = io.Copy(ts.Stdout(), r)
	ts.Check(err)
	err = cmd.Wait()
	fmt.Fprint(ts.Stderr(), stderr.String())
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Check(err)
	}
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("exit status %s", got)
	}
}
