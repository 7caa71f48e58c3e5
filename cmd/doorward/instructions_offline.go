package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/trust/gate"
)

// openOffline opens the store without a running daemon. Acts are decided and recorded as by
// the daemon.
func (i *instructor) openOffline(ctx context.Context) error {
	w := i.o.loadWhole()
	sayProblems(w.problems)
	if w.config == nil {
		return fail(exitFailed, "the configuration has problems")
	}
	state, err := i.o.stateDir()
	if err != nil {
		return err
	}
	runtime, err := i.o.runtimeDir()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(logOutput(), &slog.HandlerOptions{Level: slog.LevelWarn})) // a command logs no routine messages
	op, by, end, err := daemon.OpenInstructions(ctx, daemon.Options{Config: w.config, StateDir: state, RuntimeDir: runtime,
		Version: version, Log: log, Say: stderr()})
	if err != nil {
		return fmt.Errorf("opening the instructions: %w", err)
	}
	i.shelf, i.by, i.end = op, by, end
	return nil
}

// storeFailure gives an error of the store, used without a daemon, its text and exit status.
func storeFailure(err error) error {
	var refusal *gate.Refusal
	var problems document.Problems
	switch {
	case errors.As(err, &refusal):
		return fail(exitRefused, "refused: policy does not permit it (audit record %d)", refusal.Ref)
	case errors.As(err, &problems):
		return fail(exitFailed, "the document is not valid: %s", problems.Error())
	}
	return err
}
