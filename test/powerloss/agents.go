package main

import (
	"bufio"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
)

// agentsProgram is `powerloss agents send|read SOCKET N`. It runs the agents of a round in one
// separate process: a process that has registered is an agent, and the daemon refuses the
// operator's commands from it and its descendants.
func agentsProgram(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: powerloss agents send|read SOCKET N")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	agents := make([]*agent, n)
	for i := range agents {
		if agents[i], err = dial(args[1], agentName(i)); err != nil {
			return fmt.Errorf("%s: %w", agentName(i), err)
		}
	}
	if args[0] == "send" {
		return sendAll(agents)
	}
	return readAll(agents, os.Stdin)
}

func agentName(i int) string { return "agent-" + strconv.Itoa(i) }

// sendAll sends and reads until the daemon is gone. It prints one line per event: `sent
// ID/RECIPIENT` and `acked ID/RECIPIENT` after the daemon has answered, and `acking ID/RECIPIENT
// SENDER REDELIVERED` before the acknowledgement is sent.
func sendAll(agents []*agent) error {
	ends := make(chan error, len(agents))
	for i, a := range agents {
		work := func() error { return send(a, len(agents)) }
		if i == 0 {
			work = func() error { return readAndAck(a) }
		}
		go func() {
			for {
				if err := work(); err != nil {
					ends <- err
					return
				}
			}
		}()
	}
	for range agents { // wait for all, so that every answered message has been printed
		if err := <-ends; !errors.Is(err, errGone) {
			return err
		}
	}
	return nil
}

// send sends one message to one agent, or to two.
func send(a *agent, agents int) error {
	to := rand.Perm(agents)[:1+rand.IntN(4)/3]
	names := make([]string, len(to))
	for i, n := range to {
		names[i] = agentName(n)
	}
	var sent struct {
		MessageID  string `json:"message_id"`
		Deliveries []struct{ To string }
	}
	body := crand.Text() + strings.Repeat(" what the message says", 20)
	if err := a.call("send", map[string]any{"to": names, "body": body}, &sent); err != nil {
		return err
	}
	if len(sent.Deliveries) != len(names) {
		return fmt.Errorf("message %s: %d deliveries for %d recipients", sent.MessageID, len(sent.Deliveries), len(names))
	}
	var out strings.Builder
	for _, name := range names {
		fmt.Fprintf(&out, "sent %s/%s\n", sent.MessageID, name)
	}
	_, err := io.WriteString(os.Stdout, out.String())
	return err
}

// box is the result of the inbox tool.
type box struct {
	Messages []struct {
		MessageID   string `json:"message_id"`
		Seq         int64
		Redelivered bool
		From        struct{ Name string }
	}
	Cursor string
	More   bool
}

// readAndAck fetches up to five messages and acknowledges them.
func readAndAck(a *agent) error {
	var got box
	if err := a.call("inbox", map[string]any{"max": 5, "wait_ms": 100, "format": "json"}, &got); err != nil {
		return err
	}
	var ids []string
	for _, m := range got.Messages {
		fmt.Printf("acking %s/%s %s %t\n", m.MessageID, agentName(0), m.From.Name, m.Redelivered)
		ids = append(ids, m.MessageID)
	}
	if len(ids) == 0 {
		return nil
	}
	var acked struct {
		Acked   int
		Unknown []string
	}
	if err := a.call("ack", map[string]any{"message_ids": ids}, &acked); err != nil {
		return err
	}
	if acked.Acked != len(ids) || len(acked.Unknown) > 0 {
		return fmt.Errorf("of %d messages %d were acked, %d unknown", len(ids), acked.Acked, len(acked.Unknown))
	}
	for _, id := range ids {
		fmt.Printf("acked %s/%s\n", id, agentName(0))
	}
	return nil
}

// readAll asks the sender for the state of each message that its input names
// (`ID/RECIPIENT SENDER`) and then empties all mailboxes. It prints
// `state ID/RECIPIENT STATE` and `have ID/RECIPIENT REDELIVERED`.
func readAll(agents []*agent, in io.Reader) error {
	byName := make(map[string]*agent)
	for i, a := range agents {
		byName[agentName(i)] = a
	}
	questions := bufio.NewScanner(in)
	for questions.Scan() {
		key, sender, _ := strings.Cut(questions.Text(), " ")
		state, err := stateOf(byName[sender], key)
		if err != nil {
			return fmt.Errorf("message %s of %s: %w", key, sender, err)
		}
		fmt.Printf("state %s %s\n", key, state)
	}
	for i, a := range agents {
		if err := empty(a, agentName(i)); err != nil {
			return fmt.Errorf("reading the mail of %s: %w", agentName(i), err)
		}
	}
	return questions.Err()
}

func stateOf(a *agent, key string) (string, error) {
	if a == nil {
		return "", errors.New("no such sender")
	}
	id, recipient, _ := strings.Cut(key, "/")
	var status struct {
		Deliveries []struct{ To, State string }
	}
	err := a.call("message_status", map[string]any{"message_id": id}, &status)
	if refused := (*toolError)(nil); errors.As(err, &refused) && refused.code == "UNKNOWN_MESSAGE" {
		return "lost", nil
	}
	if err != nil {
		return "", err
	}
	for _, d := range status.Deliveries {
		if name, _, _ := strings.Cut(d.To, "@"); name == recipient {
			return d.State, nil
		}
	}
	return "", fmt.Errorf("no delivery to %s in %v", recipient, status.Deliveries)
}

// empty reads a mailbox to its end. Each call acknowledges the messages of the previous one. It
// fails when messages arrive out of order.
func empty(a *agent, name string) error {
	args := map[string]any{"max": 50, "max_bytes": 131072, "format": "json"}
	for last := int64(0); ; {
		var got box
		if err := a.call("inbox", args, &got); err != nil {
			return err
		}
		if len(got.Messages) == 0 {
			return nil
		}
		for _, m := range got.Messages {
			if m.Seq <= last {
				return fmt.Errorf("seq %d after %d", m.Seq, last)
			}
			last = m.Seq
			fmt.Printf("have %s/%s %t\n", m.MessageID, name, m.Redelivered)
		}
		args["after"] = got.Cursor
	}
}
