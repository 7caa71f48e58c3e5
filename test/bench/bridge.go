//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
)

// bridge forwards HTTP to stdio servers, one for each session or one for all. It checks nothing: no
// identity, no policy, no audit record, no strict parsing. It is the upper bound for a proxy in
// front of stdio servers on the machine.
type bridge struct {
	command []string
	shared  bool
	mu      sync.Mutex
	pipes   map[string]*pipe // by session id
	only    *pipe            // when shared
}

func newBridge(shared bool, command []string) *bridge {
	return &bridge{command: command, shared: shared, pipes: make(map[string]*pipe)}
}

func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		http.Error(w, "no stream here", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	id, p, err := b.route(r.Header.Get("Mcp-Session-Id"))
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	case p == nil:
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		b.end(id, p)
	default:
		w.Header().Set("Mcp-Session-Id", id)
		p.serve(w, body)
	}
}

// route finds the session's server. A request without a session gets a new session.
func (b *bridge) route(id string) (string, *pipe, error) {
	if id != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		return id, b.pipes[id], nil
	}
	p, err := b.server()
	if err != nil {
		return "", nil, fmt.Errorf("starting the server: %w", err)
	}
	id = rand.Text()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pipes[id] = p
	return id, p, nil
}

func (b *bridge) server() (*pipe, error) {
	if !b.shared {
		return startPipe(b.command)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	if b.only == nil {
		b.only, err = startPipe(b.command)
	}
	return b.only, err
}

func (b *bridge) end(id string, p *pipe) {
	b.mu.Lock()
	delete(b.pipes, id)
	b.mu.Unlock()
	if !b.shared {
		p.in.Close()
	}
}

// pipe is one stdio server and the requests that wait for its answers.
type pipe struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	hello   []byte // the result of its initialize
	writing sync.Mutex
	mu      sync.Mutex
	last    int64
	waiting map[int64]chan []byte
}

// startPipe starts a server and initializes it. Clients get a copy of its initialize result.
func startPipe(command []string) (*pipe, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &pipe{cmd: cmd, in: in, waiting: make(map[int64]chan []byte)}
	go p.read(out)
	if p.hello, err = p.exchange([]byte(initialize), []byte("0")); err != nil {
		return nil, err
	}
	return p, p.write([]byte(initialized))
}

// read delivers each line to the request with its id, until the server ends.
func (p *pipe) read(out io.Reader) {
	lines := bufio.NewReaderSize(out, 32<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		n, _ := strconv.ParseInt(string(bridgeID(line)), 10, 64)
		p.mu.Lock()
		answer := p.waiting[n]
		delete(p.waiting, n)
		p.mu.Unlock()
		if answer != nil {
			answer <- line
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, answer := range p.waiting {
		close(answer)
		delete(p.waiting, n)
	}
	p.cmd.Wait()
}

func (p *pipe) serve(w http.ResponseWriter, body []byte) {
	id := bridgeID(body)
	switch {
	case id == nil: // notifications/initialized, which the server has already received
		w.WriteHeader(http.StatusAccepted)
		return
	case bytes.Contains(body, []byte(`"method":"initialize"`)):
		w.Header().Set("Content-Type", "application/json")
		w.Write(withID(p.hello, id))
		return
	}
	answer, err := p.exchange(body, id)
	if err != nil {
		http.Error(w, "the server has ended", http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(answer)
}

// exchange sends a request under an id of the bridge, and returns the answer under the client's id.
func (p *pipe) exchange(message, id []byte) ([]byte, error) {
	answer := make(chan []byte, 1)
	p.mu.Lock()
	p.last++
	own := p.last
	p.waiting[own] = answer
	p.mu.Unlock()
	if err := p.write(withID(message, strconv.AppendInt(nil, own, 10))); err != nil {
		return nil, err
	}
	line := <-answer
	if line == nil {
		return nil, io.ErrUnexpectedEOF
	}
	return withID(line, id), nil
}

func (p *pipe) write(message []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := p.in.Write(append(message, '\n'))
	return err
}

// bridgeID finds the id without parsing the message, which suffices for the generator's messages.
func bridgeID(message []byte) []byte {
	from, to := idSpan(message)
	if from < 0 {
		return nil
	}
	return message[from:to]
}

// withID replaces the id.
func withID(message, id []byte) []byte {
	from, to := idSpan(message)
	if from < 0 {
		return message
	}
	out := make([]byte, 0, len(message)+len(id)+1)
	return append(append(append(out, message[:from]...), id...), message[to:]...)
}

func idSpan(message []byte) (from, to int) {
	const key = `"id":`
	at := bytes.Index(message, []byte(key))
	if at < 0 {
		return -1, -1
	}
	from = at + len(key)
	length := bytes.IndexAny(message[from:], ",}")
	if length < 0 {
		return -1, -1
	}
	return from, from + length
}
