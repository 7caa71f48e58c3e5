package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Channel is the content of the notifications of new mail to a stdio client.
type Channel string

// The modes.
const (
	ChannelOff     Channel = ""        // no notifications
	ChannelPointer Channel = "pointer" // sender and kind of the message
	ChannelFull    Channel = "full"    // also the text, in the frame of the daemon
)

// channelCapability is the experimental capability of a server that Claude Code requires
// before it accepts notifications of channelMethod. The capability for
// answering permission prompts is never declared: mail grants nothing.
const (
	channelCapability = "claude/channel"
	channelMethod     = "notifications/claude/channel"
)

// inboxURI is the resource of the caller's mailbox.
const inboxURI = "agent://inbox"

// channel notifies a client of new mail without a request. A notification wakes the
// client and delivers nothing: no message is acknowledged, and a client without support drops it.
//
// Claude Code (2.1.330) accepts such notifications only in the legacy era: a modern
// connection has no unsolicited notifications. It determines the era with
// server/discover. With a channel the shim therefore answers this request with "method
// not found", and the client continues with initialize. A client that does not send it is
// served in the modern era, and notified there too.
//
// Invariant: a shim reports a message at most once, also when the daemon restarts or the
// session or the subscription is replaced.
type channel struct {
	s    *shim
	full bool
	uri  string // of the mailbox, as the route names it
	tool string // name of the tool that reads the mailbox

	era    atomic.Int32    // eraLegacy or eraModern; 0: not begun
	rounds atomic.Int64    // times that subscribe was called
	wake   chan struct{}   // holds an element when the mailbox may have changed
	told   map[string]bool // ids of the reported messages
	oldest []string        // the same ids, oldest first
}

// maxTold is the number of reported messages that are remembered; a mailbox holds fewer.
const maxTold = 4096

func newChannel(s *shim) *channel {
	ch := &channel{s: s, full: s.o.Channel == ChannelFull, uri: inboxURI, tool: "inbox",
		wake: make(chan struct{}, 1), told: make(map[string]bool)}
	if s.o.Server == "" {
		ch.uri, ch.tool = "doorward://agent/"+inboxURI, "agent__inbox"
	}
	return ch
}

// declare adds the capability to the answer of initialize.
func (ch *channel) declare(answer []byte) []byte {
	result := rawjson.Get(answer, "result")
	if ch == nil || len(result) == 0 || result[0] != '{' {
		return answer
	}
	caps := rawjson.SetIn(rawjson.Get(result, "capabilities"), "experimental", rawjson.Edit{Key: channelCapability, Value: []byte("{}")})
	return rawjson.SetIn(answer, "result", rawjson.Edit{Key: "capabilities", Value: caps})
}

// The eras that a channel can have begun in.
const (
	eraLegacy = iota + 1
	eraModern
)

// ask sends a request of the shim in the client's era.
func (ch *channel) ask(method string, params []byte) ([]byte, error) {
	if ch.era.Load() == eraModern {
		return ch.s.c.Request(ch.s.ctx, ch.s.o.Server, method, params)
	}
	return ch.s.legacy.ask(ch.s, method, params)
}

// beginLegacy subscribes in the client's session, each time that one is initialized.
func (ch *channel) beginLegacy() {
	if ch == nil {
		return
	}
	if ch.era.CompareAndSwap(0, eraLegacy) {
		go ch.watch()
	}
	ch.subscribe()
}

// subscribe subscribes to the mailbox in a new session, and then checks the messages
// that are there already. It tries until the daemon accepts it or another call begins: the
// daemon may be busy, or policy may permit it later.
func (ch *channel) subscribe() {
	if ch == nil || ch.era.Load() != eraLegacy {
		return
	}
	round := ch.rounds.Add(1)
	go func() {
		for failed := 0; ch.rounds.Load() == round && ch.s.ctx.Err() == nil; failed++ {
			_, err := ch.ask("resources/subscribe", ch.about(ch.uri))
			if err == nil {
				ch.poke()
				return
			}
			ch.s.o.Log.Debug("the mailbox cannot be watched", "err", err)
			ch.s.rest(ch.s.ctx, pauseAfter(failed))
		}
	}()
}

// left subscribes again after the client has ended its own subscription to the mailbox: the
// session has only one.
func (ch *channel) left(m *wire.Message) {
	if ch != nil && m.Method == "resources/unsubscribe" && text(rawjson.Get(m.Params, "uri")) == ch.uri {
		ch.subscribe()
	}
}

func (ch *channel) about(uri string) []byte {
	return append(rawjson.AppendQuote([]byte(`{"uri":`), uri), '}')
}

// beginModern starts a listen of the shim, once a request of the client was answered.
func (ch *channel) beginModern() {
	if ch != nil && ch.era.CompareAndSwap(0, eraModern) {
		go ch.watch()
		go ch.listen()
	}
}

// Pauses before something is tried again.
const (
	firstPause = time.Second // also after a listen that has ended
	lastPause  = time.Minute
)

// pauseAfter returns the pause after an attempt that failed, and failed ones before it.
func pauseAfter(failed int) time.Duration { return min(firstPause<<min(failed, 6), lastPause) }

// listen keeps a subscriptions/listen for the mailbox open.
func (ch *channel) listen() {
	params := append(rawjson.AppendQuote([]byte(`{"notifications":{"resourceSubscriptions":[`), ch.uri), `]}}`...)
	for refusals := 0; ch.s.ctx.Err() == nil; {
		pause := firstPause
		refused, err := ch.hold(params)
		if refused {
			pause = pauseAfter(refusals)
			refusals++
		} else {
			refusals = 0
		}
		ch.s.o.Log.Debug("subscribing to the mailbox failed", "err", err)
		ch.s.rest(ch.s.ctx, pause)
	}
}

// hold holds one listen open. refused: the daemon does not report changes of the mailbox. A
// daemon that leaves the mailbox out of what it grants holds the listen open, and would report
// nothing when policy permits it later.
func (ch *channel) hold(params []byte) (refused bool, err error) {
	ctx, cancel := context.WithCancel(ch.s.ctx)
	defer cancel()
	err = ch.s.c.listen(ctx, ch.s.o.Server, params, func(m *wire.Message) {
		if m.Method == "notifications/subscriptions/acknowledged" && !ch.granted(m) {
			refused = true
			cancel()
			return
		}
		ch.poke()
	})
	var no *RPCError
	return refused || errors.As(err, &no), err
}

// granted reports whether an acknowledgement grants changes of the mailbox.
func (ch *channel) granted(ack *wire.Message) bool {
	for uri := range rawjson.Elements(rawjson.GetPath(ack.Params, "notifications", "resourceSubscriptions")) {
		if text(uri) == ch.uri {
			return true
		}
	}
	return false
}

// heard examines a message for the client, and reports whether it is only for the
// channel: a change of the mailbox, unless the client has subscribed to it itself.
func (ch *channel) heard(m *wire.Message) bool {
	if ch == nil || m.Method != "notifications/resources/updated" {
		return false
	}
	raw := rawjson.Get(m.Params, "uri")
	if uri, _ := wire.Text(raw); uri != ch.uri {
		return false
	}
	ch.poke()
	return !ch.s.legacy.subscribed(ch.uri)
}

func (ch *channel) poke() {
	select {
	case ch.wake <- struct{}{}:
	default: // watch is going to look already
	}
}

// watch checks the mailbox whenever it may have changed. It repeats a check that failed until
// one succeeds: the daemon reports a change once.
func (ch *channel) watch() {
	var again <-chan time.Time // nil: the last check succeeded
	for failed := 0; ; {
		select {
		case <-ch.s.ctx.Done():
			return
		case <-ch.wake:
		case <-again:
		}
		err := ch.look()
		if again = nil; err == nil {
			failed = 0
			continue
		}
		ch.s.o.Log.Debug("the mailbox cannot be read", "err", err)
		again = time.After(pauseAfter(failed))
		failed++
	}
}

// pointer is a waiting message without its content, as the mailbox resource has it.
type pointer struct {
	ID      string `json:"message_id"`
	From    string `json:"from"`
	Lineage string `json:"lineage"`
	Kind    string `json:"kind"`
	Seq     int64  `json:"seq"`
}

// look reads the mailbox and reports the messages that were not reported yet, oldest first.
func (ch *channel) look() error {
	result, err := ch.ask("resources/read", ch.about(ch.uri))
	if err != nil {
		return err
	}
	waiting, err := pointers(result)
	if err != nil {
		return err
	}
	waiting = slices.DeleteFunc(waiting, func(p pointer) bool { return ch.told[p.ID] || !isMessageID(p.ID) })
	if len(waiting) == 0 {
		return nil
	}
	slices.SortFunc(waiting, func(a, b pointer) int { return cmp.Compare(a.Seq, b.Seq) })
	text := ""
	if ch.full {
		text = ch.peek()
	}
	for _, p := range waiting {
		ch.tell(p, frameOf(text, p.ID))
	}
	return nil
}

// pointers returns the messages in a resources/read result of the mailbox.
func pointers(result []byte) ([]pointer, error) {
	var read struct {
		Contents []struct {
			Text string `json:"text"`
		} `json:"contents"`
	}
	var box struct {
		Messages []pointer `json:"messages"`
	}
	if err := json.Unmarshal(result, &read); err != nil {
		return nil, fmt.Errorf("reading the mailbox: %w", err)
	}
	if len(read.Contents) == 0 {
		return nil, errors.New("reading the mailbox: no contents")
	}
	if err := json.Unmarshal([]byte(read.Contents[0].Text), &box); err != nil {
		return nil, fmt.Errorf("reading the mailbox: %w", err)
	}
	return box.Messages, nil
}

// peek returns the mailbox as text, with the daemon's frames around the texts of peers;
// empty: it cannot be read. It acknowledges nothing.
func (ch *channel) peek() string {
	params := append(rawjson.AppendQuote([]byte(`{"name":`), ch.tool), `,"arguments":{"peek":true,"max":50}}`...)
	result, err := ch.ask("tools/call", params)
	if err != nil {
		ch.s.o.Log.Debug("the mailbox cannot be read in full", "err", err)
		return ""
	}
	var call struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Failed bool `json:"isError"`
	}
	if json.Unmarshal(result, &call) != nil || call.Failed {
		return ""
	}
	var all strings.Builder
	for _, c := range call.Content {
		all.WriteString(c.Text)
		all.WriteByte('\n')
	}
	return all.String()
}

// frameOf returns the frame of one message in a mailbox's text. The lines of a peer's
// text begin with "| ", so none of them can be taken for the first or last line of a frame.
func frameOf(text, id string) string {
	const first, last = "[peer-message ", "[/peer-message "
	var frame []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case len(frame) > 0:
			frame = append(frame, line)
			if strings.HasPrefix(line, last) {
				return strings.Join(frame, "\n")
			}
		case strings.HasPrefix(line, first) && slices.Contains(strings.Fields(strings.TrimSuffix(line, "]")), "id="+id):
			frame = []string{line}
		}
	}
	return "" // there is none, or it is cut off
}

// tell writes the notification. Outside of the frame it contains only constant text and
// names of a restricted alphabet.
func (ch *channel) tell(p pointer, frame string) {
	from, lineage, kind := word(p.From, "@/._-", 320), word(p.Lineage, "", 20), word(p.Kind, "", 20)
	content := fmt.Sprintf("1 new message from %s (%s). Call %s.", from, lineage, ch.tool)
	if frame != "" {
		content += "\n" + frame
	}
	params, err := json.Marshal(map[string]any{"content": content, "meta": map[string]string{
		"message_id": p.ID, "from_peer": from, "lineage": lineage, "kind": kind}})
	if err != nil {
		return // cannot happen: strings can always be encoded
	}
	ch.s.write(rawjson.AppendNotification(nil, channelMethod, params))
	ch.told[p.ID] = true
	if ch.oldest = append(ch.oldest, p.ID); len(ch.oldest) > maxTold {
		delete(ch.told, ch.oldest[0])
		ch.oldest = ch.oldest[1:]
	}
}

// word returns s if it consists of lower-case letters, digits and the characters in more,
// and "unknown" otherwise.
func word(s, more string, most int) string {
	for i := 0; i < len(s); i++ {
		if !labelByte(s[i]) && strings.IndexByte(more, s[i]) < 0 {
			return "unknown"
		}
	}
	if s == "" || len(s) > most {
		return "unknown"
	}
	return s
}

// isMessageID reports whether s has 26 digits of Crockford's base32 alphabet.
func isMessageID(s string) bool {
	return len(s) == 26 && strings.Trim(s, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == ""
}

// deliver forwards a message of the daemon to the client, unless it is only for the channel.
func (s *shim) deliver(got *wire.Message, raw []byte) {
	if !s.channel.heard(got) {
		s.write(raw)
	}
}
