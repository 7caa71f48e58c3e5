package main

import (
	"fmt"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/doorward/doorward/test/doortest"
)

// cmdIssuer starts an authorization server, or changes one:
//
//	issuer NAME              sets NAME to its URL and writes NAME.pem, which `daemon SSL_CERT_FILE=$WORK/NAME.pem` trusts
//	issuer NAME set MODE     how it answers; see doortest.Issuer
//	issuer NAME publish KEY  issuer NAME withdraw KEY   changes its key set
//	issuer NAME hits PATH    prints how often a path with this ending was requested
func cmdIssuer(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 1 || len(args) == 3, "issuer NAME [set MODE | publish KEY | withdraw KEY | hits PATH]")
	s := stageOf(ts)
	if len(args) == 1 {
		i, err := doortest.NewIssuer()
		ts.Check(err)
		ts.Defer(i.Close)
		s.issuers[args[0]] = i
		ts.Setenv(args[0], i.URL)
		ts.Check(os.WriteFile(ts.MkAbs(args[0]+".pem"), i.CA, 0o600))
		return
	}
	i := s.issuers[args[0]]
	if i == nil {
		ts.Fatalf("no issuer %s", args[0])
	}
	switch args[1] {
	case "set":
		i.Set(args[2])
	case "publish":
		_, err := i.Publish(args[2])
		ts.Check(err)
	case "withdraw":
		i.Withdraw(args[2])
	case "hits":
		fmt.Fprintln(ts.Stdout(), i.Hits(args[2]))
	default:
		ts.Fatalf("issuer: unknown %s", args[1])
	}
}

// cmdMint makes an access token: `mint VAR ISSUER FIELD…`, with the fields of
// doortest.Issuer.Mint.
func cmdMint(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) >= 2 && stageOf(ts).issuers[args[1]] != nil, "mint VAR ISSUER FIELD…")
	token, err := stageOf(ts).issuers[args[1]].Mint(args[2:]...)
	ts.Check(err)
	ts.Setenv(args[0], token)
}
