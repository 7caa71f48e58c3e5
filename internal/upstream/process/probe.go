//go:build unix

package process

import "fmt"

// probe builds the sandbox of a plan, and reports which measures hold.
func (r *Runner) probe(plan *plan) ([]Measure, error) {
	p, err := launch(r, Spec{Server: "check", Path: "/"}, plan)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotContained, err)
	}
	err = p.report.first()
	p.closeControl()
	p.exit.wait(p.reap)
	p.group.remove()
	_, _, _ = p.Stdin.Close(), p.Stdout.Close(), p.report.file.Close()
	return p.report.measures(), err
}
