package offer

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/paramheader"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// judge asks the server for a whole list and compares it with what was approved, unless a
// current verdict exists. One goroutine at a time asks.
func (f *Offers) judge(ctx context.Context, k pin.Kind) (*pin.Verdict, error) {
	o := &f.lists[k]
	release, err := o.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if v := o.current(); v != nil {
		return v, nil
	}
	v, _, err := f.askList(ctx, k)
	return v, err
}

// Judged is judge without the use of a known verdict. It returns the list as the server gave
// it.
func (f *Offers) Judged(ctx context.Context, k pin.Kind) (entries []byte, err error) {
	release, err := f.lists[k].take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	_, entries, err = f.askList(ctx, k)
	return entries, err
}

// askList asks the server for a whole list. The caller holds the list's turn.
func (f *Offers) askList(ctx context.Context, k pin.Kind) (v *pin.Verdict, entries []byte, err error) {
	o := &f.lists[k]
	changes := o.changes.Load()
	entries, ok, err := f.wholeList(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	v = f.o.Guard.NoList(k)
	if ok {
		v = f.view.Judge(f.asker(nil), k, entries)
	}
	o.store(v, changes)
	return v, entries, nil
}

// maxList bounds the bytes of a list that are read. The rest counts as not listed.
const maxList = 32 << 20

// wholeList asks for all pages of a list; false: the server has no such list.
func (f *Offers) wholeList(ctx context.Context, k pin.Kind) (entries []byte, ok bool, err error) {
	kind, _ := listing.Of(listing.ListMethods[k])
	known := f.o.Table.Now()
	entries = []byte{'['}
	var cursor []byte
	for page := 0; page < MaxPages && len(entries) < maxList; page++ {
		req := upstream.Request{Method: listing.ListMethods[k], Params: era.OwnParams(f.o.Meta, rawjson.Edit{Key: "cursor", Value: cursor})}
		reply, err := f.o.Conn.Call(ctx, &req, nil)
		if err != nil {
			return nil, false, err
		}
		list := rawjson.Get(reply.Result, kind.Member)
		if reply.Error != nil || len(list) == 0 || list[0] != '[' {
			return nil, false, nil
		}
		for e := range rawjson.Elements(list) {
			entries = append(rawjson.AppendComma(entries), e...)
		}
		next := listing.Next(reply.Result)
		if next == nil || string(next) == string(cursor) {
			break
		}
		cursor = next
	}
	entries = append(entries, ']')
	if k == pin.Tools && f.o.Learn {
		f.o.Table.Learn(known, entries, true)
	}
	return entries, true, nil
}

// Shown returns the part of a list that the client asked for and may see; changes was read
// before the request. A whole list is judged as it came, without a second request.
func (f *Offers) Shown(ctx context.Context, t resolve.Target, changes uint64, result []byte) ([]byte, error) {
	kind, isList := listing.Of(t.Method())
	if !isList {
		return result, nil
	}
	if result = sole(kind.Member, result); f.o.Guard == nil {
		return result, nil
	}
	k, _ := listing.PinKind(t.Method())
	entries := rawjson.Get(result, kind.Member)
	if len(entries) == 0 || entries[0] != '[' {
		return result, nil
	}
	whole := listing.Cursor(t.Params()) == nil && listing.Next(result) == nil
	o := &f.lists[k]
	v := o.current()
	switch {
	case whole:
		v = f.view.Judge(f.asker(t.Params()), k, entries)
		o.store(v, changes)
	case v == nil:
		var err error
		if v, err = f.judge(ctx, k); err != nil {
			return nil, err
		}
	}
	shown, changed := v.Show(entries, whole)
	if !changed {
		return result, nil
	}
	return rawjson.Set(result, rawjson.Edit{Key: kind.Member, Value: shown}), nil
}

// sole removes members of a list's result that some parsers take for the list: their entries
// would not have been judged.
func sole(member string, result []byte) []byte {
	var edits []rawjson.Edit
	for key := range rawjson.Members(result) {
		if key != member && wire.Resembles(key, member) {
			edits = append(edits, rawjson.Edit{Key: key})
		}
	}
	if edits == nil {
		return result
	}
	return rawjson.Set(result, edits...)
}

// Look asks for every list again and judges it.
func (f *Offers) Look(ctx context.Context) error {
	var failed []error
	for k := range pin.KindCount {
		f.lists[k].forget()
		if _, err := f.judge(ctx, k); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// MaxPages bounds the pages that are read of one list.
const MaxPages = 100

// Headers returns a tool's annotations. It asks the server for its tools if they are not
// known yet.
func (f *Offers) Headers(ctx context.Context, tool string) (paramheader.Tool, error) {
	set := f.o.Table.Now()
	if h, known := set.Of(tool); known {
		return h, nil
	}
	var cursor []byte
	for page := range MaxPages {
		req := upstream.Request{Method: "tools/list", Params: era.OwnParams(f.o.Meta, rawjson.Edit{Key: "cursor", Value: cursor})}
		reply, err := f.o.Conn.Call(ctx, &req, nil)
		if err != nil {
			return paramheader.Tool{}, err
		}
		// After an error the server counts as one without tools; the call itself gets the
		// error.
		cursor = listing.Next(reply.Result)
		set = f.o.Table.Learn(set, rawjson.Get(reply.Result, "tools"), cursor == nil || page == MaxPages-1)
		if cursor == nil {
			break
		}
	}
	h, _ := set.Of(tool)
	return h, nil
}
