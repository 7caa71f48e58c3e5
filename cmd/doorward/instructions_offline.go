package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/trust/gate"
)

// offlineInstructions opens the store of a daemon that does not run. Acts are
// decided and recorded as the daemon would.
func offlineInstructions(ctx context.Context, o *options) (instructionsOperator, func(), error) {
	w := o.loadWhole()
	sayProblems(w.problems)
	if w.config == nil {
		return nil, nil, fail(exitFailed, "the configuration has problems")
	}
	state, err := o.stateDir()
	if err != nil {
		return nil, nil, err
	}
	runtime, err := o.runtimeDir()
	if err != nil {
		return nil, nil, err
	}
	log := slog.New(slog.NewTextHandler(logOutput(), &slog.HandlerOptions{Level: slog.LevelWarn})) // what is usual is not for a command
	op, by, end, err := daemon.OpenInstructions(ctx, daemon.Options{Config: w.config, StateDir: state, RuntimeDir: runtime,
		Version: version, Log: log, Say: stderr()})
	if err != nil {
		return nil, nil, fmt.Errorf("opening the instructions: %w", err)
	}
	return shelfOfStore{op, by}, end, nil
}

// shelfOfStore are the documents without a daemon.
type shelfOfStore struct {
	op *deliver.Operator
	by deliver.Caller
}

// in says what a refusal of the store means.
func in[T any](out T, err error) (T, error) {
	var refusal *gate.Refusal
	var problems document.Problems
	switch {
	case errors.As(err, &refusal):
		return out, fail(exitRefused, "refused: policy does not permit it (audit record %d)", refusal.Ref)
	case errors.As(err, &problems):
		return out, fail(exitFailed, "the document is not valid: %s", problems.Error())
	}
	return out, err
}

func (s shelfOfStore) List(ctx context.Context) (*deliver.Listing, error) {
	return in(s.op.List(ctx, s.by))
}

func (s shelfOfStore) Versions(ctx context.Context, name string) (*deliver.Versions, error) {
	return in(s.op.Versions(ctx, s.by, name))
}

func (s shelfOfStore) Show(ctx context.Context, name, ref string) (*deliver.Shown, error) {
	return in(s.op.Show(ctx, s.by, name, ref))
}

func (s shelfOfStore) Put(ctx context.Context, name, content string) (*deliver.VersionInfo, error) {
	return in(s.op.Put(ctx, s.by, name, content, ""))
}

func (s shelfOfStore) Promote(ctx context.Context, name, version, label string) (*library.Act, error) {
	return in(s.op.Promote(ctx, s.by, name, version, label))
}

func (s shelfOfStore) Rollback(ctx context.Context, name string) (*library.Act, error) {
	return in(s.op.Rollback(ctx, s.by, name))
}

func (s shelfOfStore) Revoke(ctx context.Context, name, version string) (*library.Act, error) {
	return in(s.op.Revoke(ctx, s.by, name, version))
}

func (s shelfOfStore) Access(ctx context.Context) (*deliver.Accessed, error) {
	return in(s.op.Access(ctx, s.by))
}

func (s shelfOfStore) Canary(ctx context.Context, ref string) (*deliver.Access, error) {
	return in(s.op.Canary(ctx, s.by, ref))
}
