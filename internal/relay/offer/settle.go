package offer

import (
	"context"
	"errors"
	"time"

	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// unlistedAgain is how old a verdict must be before a name that is not in it
// makes the server be asked again.
const unlistedAgain = time.Second

// Settled checks whether the server offers what t names, and returns t with the server's own
// name for it. The error is a pin.Held for a name that is withheld.
func (f *Offers) Settled(ctx context.Context, t resolve.Target) (resolve.Target, error) {
	if f.o.Guard == nil {
		return t, nil
	}
	switch t.Method() {
	case "tools/call":
		return f.named(ctx, pin.Tools, t)
	case "prompts/get":
		return f.named(ctx, pin.Prompts, t)
	case "resources/read", "resources/subscribe", "resources/directory/read":
		return t, shut(Resource(f.view, t.Name()))
	case "skills/get":
		return t, errors.Join(shut(f.view.Shut(pin.Skills, t.Name())), shut(skill(f.view, t.Name())))
	case "completion/complete":
		if t.NamesURI() {
			return t, errors.Join(shut(f.view.Shut(pin.Templates, t.Name())), shut(f.view.Shut(pin.Resources, t.Name())))
		}
		return f.named(ctx, pin.Prompts, t)
	}
	return t, nil
}

func (f *Offers) named(ctx context.Context, k pin.Kind, t resolve.Target) (resolve.Target, error) {
	own, err := f.ownName(ctx, k, t.Name())
	if err == nil && own != t.Name() {
		t = t.Renamed(own)
	}
	return t, err
}

// ownName returns the server's own name of a tool or prompt. A name that is on no
// list is looked up again, because the server may have added it without a
// notification.
func (f *Offers) ownName(ctx context.Context, k pin.Kind, name string) (string, error) {
	o := &f.lists[k]
	v := o.current()
	fresh := v == nil
	var err error
	if fresh {
		if v, err = f.judge(ctx, k); err != nil {
			return "", err
		}
	}
	own, why := v.Name(name)
	if why == pin.Unlisted && !fresh && time.Since(time.Unix(0, o.looked.Load())) > unlistedAgain {
		o.verdict.CompareAndSwap(v, nil)
		if v, err = f.judge(ctx, k); err != nil {
			return "", err
		}
		own, why = v.Name(name)
	}
	switch why {
	case "":
		return own, nil
	case pin.Unlisted:
		if why = f.o.Guard.Unlisted(k, name); why == "" {
			return name, nil
		}
	}
	return "", &pin.Held{Reason: why}
}
