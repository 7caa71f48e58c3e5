package relay

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// offer is what is known of one list of one connection.
type offer struct {
	verdict atomic.Pointer[pin.Verdict] // nil: unknown, or not any more
	changes atomic.Uint64               // how often the server said that it changed
	looked  atomic.Int64                // when the verdict was made, in Unix nanoseconds

	once sync.Once
	turn chan struct{} // held by who asks the server
}

// forget makes the next use ask again.
func (o *offer) forget() {
	o.changes.Add(1)
	o.verdict.Store(nil)
}

// store keeps a verdict about a list that was asked for when changes was read,
// unless the list has changed since.
func (o *offer) store(v *pin.Verdict, changes uint64) {
	o.looked.Store(time.Now().UnixNano())
	o.verdict.Store(v)
	if o.changes.Load() != changes {
		o.verdict.CompareAndSwap(v, nil)
	}
}

func (o *offer) current() *pin.Verdict {
	if v := o.verdict.Load(); v != nil && v.Current() {
		return v
	}
	return nil
}

func (o *offer) take(ctx context.Context) (release func(), err error) {
	o.once.Do(func() { o.turn = make(chan struct{}, 1) })
	select {
	case o.turn <- struct{}{}:
		return func() { <-o.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *liveConn) eraName() string {
	if c.era == front.Modern {
		return "modern"
	}
	return "legacy"
}

// telling are the capabilities of a client by which some servers decide what they offer.
var telling = [][]string{{"elicitation"}, {"elicitation", "url"}, {"roots"}, {"sampling"}, {"sampling", "tools"}, {"tasks"}}

// asker is for whom a list is asked on c: the session that it is private to,
// or the request with params.
func (l *link) asker(c *liveConn, params []byte) pin.Asker {
	caps := wire.GetPath(params, "_meta", wire.MetaCapabilities)
	if c.era == front.Legacy {
		caps = wire.Get(l.init, "capabilities")
	}
	var words []string
	for _, path := range telling {
		if wire.GetPath(caps, path...) != nil {
			words = append(words, strings.Join(path, "."))
		}
	}
	return pin.Asker{Era: c.eraName(), Client: strings.Join(words, ",")}
}

// relisted is called for a notification of a change.
func (l *link) relisted(method string) {
	c := l.live.Load()
	if c == nil {
		return
	}
	for k, list := range listing.ListMethods {
		if kind, _ := listing.Of(list); kind.Changed == method {
			c.offers[k].forget()
		}
	}
}

// met notes what a server says of itself on a new connection.
func (l *link) met(c *liveConn) {
	if l.b.Pin != nil {
		c.pin = l.b.Pin.View()
		go func() {
			<-c.conn.Done()
			c.pin.Close()
		}()
		c.pin.Meet(c.eraName(), wire.Get(c.hello, "capabilities"), wire.Get(c.hello, "instructions"))
	}
}

// startable is why the server's program may not be started.
func (b *backend) startable() error {
	if b.Pin == nil {
		return nil
	}
	return b.Pin.Start()
}

// greeting is what a server says of itself as clients may see it.
func (b *backend) greeting(c *liveConn, result []byte) []byte {
	if b.Pin == nil {
		return result
	}
	var edits []rawjson.Edit
	if text := wire.Get(result, "instructions"); text != nil {
		edits = append(edits, rawjson.Edit{Key: "instructions", Value: c.pin.Instructions(c.eraName(), text)})
	}
	if info := wire.Get(result, "serverInfo"); info != nil {
		clean, _ := pin.CleanText(info, 0)
		edits = append(edits, rawjson.Edit{Key: "serverInfo", Value: clean})
	}
	result = rawjson.Set(result, edits...)
	if info := wire.GetPath(result, "_meta", wire.MetaServerInfo); info != nil {
		clean, n := pin.CleanText(info, 0)
		if n > 0 {
			result = rawjson.SetIn(result, "_meta", rawjson.Edit{Key: wire.MetaServerInfo, Value: clean})
		}
	}
	return result
}

// unlistedAgain is how old a verdict must be before a name that is not in it
// makes the server be asked again.
const unlistedAgain = time.Second

// pinned settles whether c offers what t names, and puts the server's own name
// for it in.
func (l *link) pinned(ctx context.Context, c *liveConn, t target) (target, error) {
	if l.b.Pin == nil {
		return t, nil
	}
	switch t.Method() {
	case "tools/call":
		return l.named(ctx, c, pin.Tools, t)
	case "prompts/get":
		return l.named(ctx, c, pin.Prompts, t)
	case "resources/read", "resources/subscribe", "resources/directory/read":
		return t, errors.Join(shut(c.pin, pin.Resources, t.Name()), shutSkill(c.pin, t.Name()))
	case "skills/get":
		return t, errors.Join(shut(c.pin, pin.Skills, t.Name()), shutSkill(c.pin, t.Name()))
	case "completion/complete":
		return l.completed(ctx, c, t)
	}
	return t, nil
}

// shut: a server may use addresses that no list contains, from its templates or
// in a result; only withheld ones are refused.
func shut(g *pin.View, k pin.Kind, uri string) error {
	if why := g.Shut(k, uri); why != "" {
		return &pin.Held{Reason: why}
	}
	return nil
}

// skillFile is the file of a skill that its URI names; the rest of the skill is beside and
// below it (SEP-2640).
const skillFile = "/SKILL.md"

// shutFor is why an address may not be used on any connection of the server.
func shutFor(b *backend, k pin.Kind, uri string) pin.Reason {
	if b.Pin == nil {
		return ""
	}
	return b.Pin.Shut(k, uri)
}

// shutSkill refuses the addresses of a withheld skill: its definition has their digests.
// A list of skills that is not approved yet shuts no resource. A server may decode an
// address, and ignore its query, before it looks for the slashes.
func shutSkill(g *pin.View, uri string) error {
	place, _, _ := strings.Cut(uri, "#")
	place, _, _ = strings.Cut(place, "?")
	ways := []string{uri, place}
	if plain, err := url.PathUnescape(place); err == nil {
		ways = append(ways, plain)
	}
	for _, way := range slices.Compact(ways) {
		if err := shutBelow(g, way); err != nil {
			return err
		}
	}
	return nil
}

// shutBelow looks for a withheld skill at an address and at every one above it.
func shutBelow(g *pin.View, uri string) error {
	for dir := uri; ; {
		for _, skill := range []string{dir, dir + skillFile} {
			if why := g.Shut(pin.Skills, skill); why != "" && why != pin.Unapproved {
				return &pin.Held{Reason: why}
			}
		}
		cut := strings.LastIndexByte(dir, '/')
		if cut <= strings.Index(dir, "://")+len("://") {
			return nil
		}
		dir = dir[:cut]
	}
}

func (l *link) named(ctx context.Context, c *liveConn, k pin.Kind, t target) (target, error) {
	own, err := l.ownName(ctx, c, k, t.Name())
	if err == nil && own != t.Name() {
		t.Target = t.Renamed(own)
	}
	return t, err
}

func (l *link) completed(ctx context.Context, c *liveConn, t target) (target, error) {
	if t.NamesURI() {
		return t, errors.Join(shut(c.pin, pin.Templates, t.Name()), shut(c.pin, pin.Resources, t.Name()))
	}
	return l.named(ctx, c, pin.Prompts, t)
}

// ownName returns the server's own name of a tool or prompt. A name that is on no
// list is looked up again, because the server may have added it without a
// notification.
func (l *link) ownName(ctx context.Context, c *liveConn, k pin.Kind, name string) (string, error) {
	o := &c.offers[k]
	v := o.current()
	fresh := v == nil
	var err error
	if fresh {
		if v, err = l.judge(ctx, c, k); err != nil {
			return "", err
		}
	}
	own, why := v.Name(name)
	if why == pin.Unlisted && !fresh && time.Since(time.Unix(0, o.looked.Load())) > unlistedAgain {
		o.verdict.CompareAndSwap(v, nil)
		if v, err = l.judge(ctx, c, k); err != nil {
			return "", err
		}
		own, why = v.Name(name)
	}
	switch why {
	case "":
		return own, nil
	case pin.Unlisted:
		if why = l.b.Pin.Unlisted(k, name); why == "" {
			return name, nil
		}
	}
	return "", &pin.Held{Reason: why}
}

// judge asks the server for a whole list and has it compared with what was
// approved. One asks at a time.
func (l *link) judge(ctx context.Context, c *liveConn, k pin.Kind) (*pin.Verdict, error) {
	o := &c.offers[k]
	release, err := o.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if v := o.current(); v != nil {
		return v, nil
	}
	v, _, err := l.askList(ctx, c, k)
	return v, err
}

// judged has a whole list compared with what was approved as judge does, whatever
// is known of it, and returns it as the server gave it.
func (l *link) judged(ctx context.Context, c *liveConn, k pin.Kind) (entries []byte, err error) {
	release, err := c.offers[k].take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	_, entries, err = l.askList(ctx, c, k)
	return entries, err
}

// askList asks the server for a whole list, whose turn the caller holds.
func (l *link) askList(ctx context.Context, c *liveConn, k pin.Kind) (v *pin.Verdict, entries []byte, err error) {
	o := &c.offers[k]
	changes := o.changes.Load()
	entries, ok, err := l.wholeList(ctx, c, k)
	if err != nil {
		return nil, nil, err
	}
	v = l.b.Pin.NoList(k)
	if ok {
		v = c.pin.Judge(l.asker(c, nil), k, entries)
	}
	o.store(v, changes)
	return v, entries, nil
}

// maxList is how many bytes of a list are read. The rest counts as not listed.
const maxList = 32 << 20

// wholeList asks for all pages of a list; false when the server answers none.
func (l *link) wholeList(ctx context.Context, c *liveConn, k pin.Kind) (entries []byte, ok bool, err error) {
	kind, _ := listing.Of(listing.ListMethods[k])
	known := l.b.params.Now()
	entries = []byte{'['}
	var cursor []byte
	for page := 0; page < maxPages && len(entries) < maxList; page++ {
		req := upstream.Request{Method: listing.ListMethods[k], Params: l.withMeta(c, rawjson.Edit{Key: "cursor", Value: cursor})}
		reply, err := c.conn.Call(ctx, &req, nil)
		if err != nil {
			return nil, false, err
		}
		list := wire.Get(reply.Result, kind.Member)
		if reply.Error != nil || len(list) == 0 || list[0] != '[' {
			return nil, false, nil
		}
		for e := range wire.Elements(list) {
			entries = append(rawjson.AppendComma(entries), e...)
		}
		next := wire.Get(reply.Result, "nextCursor")
		if next == nil || string(next) == string(cursor) {
			break
		}
		cursor = next
	}
	entries = append(entries, ']')
	if k == pin.Tools && (c.era == front.Modern || l.client == front.Modern) {
		l.b.params.Learn(known, entries, true)
	}
	return entries, true, nil
}

// listed is what a client may see of a list that it asked for itself; changes
// was read before. A list that came whole needs no second question.
func (l *link) listed(ctx context.Context, c *liveConn, t target, changes uint64, result []byte) ([]byte, error) {
	kind, isList := listing.Of(t.Method())
	if !isList {
		return result, nil
	}
	if result = sole(kind.Member, result); l.b.Pin == nil {
		return result, nil
	}
	k, _ := listing.PinKind(t.Method())
	entries := wire.Get(result, kind.Member)
	if len(entries) == 0 || entries[0] != '[' {
		return result, nil
	}
	whole := wire.Get(t.Params(), "cursor") == nil && wire.Get(result, "nextCursor") == nil
	o := &c.offers[k]
	v := o.current()
	switch {
	case whole:
		v = c.pin.Judge(l.asker(c, t.Params()), k, entries)
		o.store(v, changes)
	case v == nil:
		var err error
		if v, err = l.judge(ctx, c, k); err != nil {
			return nil, err
		}
	}
	shown, changed := v.Show(entries, whole)
	if !changed {
		return result, nil
	}
	return rawjson.Set(result, rawjson.Edit{Key: kind.Member, Value: shown}), nil
}

// sole is the result of a list without members that some reader takes for the list: it
// would get entries that were not judged.
func sole(member string, result []byte) []byte {
	var edits []rawjson.Edit
	for key := range wire.Members(result) {
		if key != member && wire.Resembles(key, member) {
			edits = append(edits, rawjson.Edit{Key: key})
		}
	}
	if edits == nil {
		return result
	}
	return rawjson.Set(result, edits...)
}

// changesOf is how often the list of a method has changed so far.
func (c *liveConn) changesOf(method string) uint64 {
	if k, ok := listing.PinKind(method); ok {
		return c.offers[k].changes.Load()
	}
	return 0
}
