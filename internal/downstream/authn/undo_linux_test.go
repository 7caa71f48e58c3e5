package authn

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAnUndoneRotationChangesNothing: whatever the predecessor and the rotation, undoing leaves the
// other tokens as they were, and the successor is revoked.
func TestAnUndoneRotationChangesNothing(t *testing.T) {
	t.Parallel()
	for _, life := range []time.Duration{0, time.Minute, 48 * time.Hour} {
		for _, overlap := range []time.Duration{0, time.Hour, 72 * time.Hour} {
			for rotated := range 3 {
				s := NewStore(filepath.Join(t.TempDir(), "state"))
				mustNew(t, s, "ci", life, "agent")
				mustNew(t, s, "other", 0, "")
				for range rotated {
					mustRotate(t, s, "ci", Rotation{Overlap: time.Hour, Expires: life})
				}
				before, err := s.List()
				if err != nil {
					t.Fatal(err)
				}
				made := mustRotate(t, s, "ci", Rotation{Overlap: overlap})
				if err := s.Undo(made); err != nil {
					t.Fatal(err)
				}
				after, err := s.List()
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before, after[:len(before)]); diff != "" {
					t.Errorf("life %v, overlap %v, %d rotations before: %s", life, overlap, rotated, diff)
				}
				if last := after[len(before)]; last.ID != made.ID || last.Revoked.IsZero() {
					t.Errorf("%+v", last)
				}
				mustRotate(t, s, "ci", Rotation{})
			}
		}
	}
}

// TestAnUndoneRotationRespectsLaterChanges: a rotation or revocation between a rotation and its undoing
// keeps its effect.
func TestAnUndoneRotationRespectsLaterChanges(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	_, first := mustNew(t, s, "ci", 0, "")
	second := mustRotate(t, s, "ci", Rotation{Overlap: time.Hour})
	third := mustRotate(t, s, "ci", Rotation{Overlap: time.Hour})
	if err := s.Undo(second); err != nil {
		t.Fatal(err)
	}
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	if all[0].ID != first || all[0].Expires.IsZero() || all[1].Revoked.IsZero() || all[2].ID != third.ID || !all[2].live(time.Now()) {
		t.Errorf("%+v", all)
	}
	fourth := mustRotate(t, s, "ci", Rotation{Overlap: time.Hour})
	if _, err := s.Revoke("ci"); err != nil {
		t.Fatal(err)
	}
	if err := s.Undo(fourth); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rotate("ci", Rotation{}); !errors.Is(err, ErrNoPredecessor) {
		t.Errorf("a revoked token is there again: %v", err)
	}
	if err := s.Undo(Rotated{}); !errors.Is(err, ErrNoToken) {
		t.Errorf("%v", err)
	}
}
