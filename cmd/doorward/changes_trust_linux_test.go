//go:build linux && changes

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon/admin"
)

// describe changes the description of the first entry of a list, and reports it. The entry is
// withheld until the operator trusts the server.
func (s *changeServer) describe(list string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said[list]++
	for p := range s.peers {
		if p.say != nil {
			s.report(p, list)
		}
	}
}

// trust makes the operator approve what a server offers, as soon as it answers.
func (x *changeRun) trust(server string) {
	x.w.t.Helper()
	s := x.w.servers[server]
	s.mu.Lock()
	for list, n := range s.said {
		s.trusted[list] = n
	}
	s.mu.Unlock()
	why := ""
	if !poll(changeSoon+late(), func() bool {
		why = x.w.approves(server)
		return why == ""
	}) {
		x.w.t.Fatalf("trust %s: %s", server, why)
	}
}

// approves does what doorward trust does, with a token: the test speaks MCP itself, so no command
// below it may approve. It returns why not all is approved; empty: it is.
func (w *changeWorld) approves(server string) (why string) {
	var found admin.Trust
	why = w.admin("/admin/v1/trust/look", admin.TrustLook{Server: server}, &found)
	if items := approvable(found); why == "" && len(items) > 0 {
		why = w.admin("/admin/v1/trust", admin.TrustApproval{Server: server, Items: items}, &struct{}{})
	}
	if why == "" && found.Unreached {
		why = "it did not list what it offers"
	}
	return why
}

// admin posts a request of the operator, and returns why that failed; empty: it did not.
func (w *changeWorld) admin(path string, in, out any) (why string) {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.d.address(false)+path, strings.NewReader(line(in)))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+w.tokens["admin"])
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.http.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.Status, " ", err)
	}
	return ""
}

// trustEach makes each server change descriptions, which withholds the entries, and then trusts
// it. The clients hear of both.
func (x *changeRun) trustEach() {
	for _, server := range x.w.names {
		x.w.servers[server].describe("tools")
		x.w.servers[server].describe("prompts")
	}
	x.quiet("with entries withheld")
	for _, server := range x.w.names {
		if x.w.configured(server) > 0 {
			x.trust(server)
			x.did = append(x.did, time.Now().Format("05.000 ")+server+" is trusted")
		}
	}
	x.quiet("with all trusted")
}

// mayList notes a fault if a client is listed a description that the operator has not approved.
func (w *changeWorld) mayList(c *changeClient, server, list, version string) {
	s := w.servers[server]
	s.mu.Lock()
	trusted := s.trusted[list]
	s.mu.Unlock()
	if n, err := strconv.Atoi(version); err != nil || n > trusted {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.faults = append(w.faults, fmt.Sprintf("%s got the %s of %s in version %s, not approved", c.name, list, server, version))
	}
}
