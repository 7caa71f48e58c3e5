package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// jail is the second stage of a contained server.
type jail struct {
	plan     *plan
	argv     []string
	dir      string // the working directory in which the daemon started the stage
	folder   folder // that directory itself
	home     string
	program  []string // paths that the server's program needs, itself included
	scratch  []string // writable directories that only this server sees
	measures []Measure
}

func (j *jail) note(name, state, detail string) {
	j.measures = append(j.measures, Measure{Name: name, State: state, Detail: detail})
}

// try notes a measure whose failure does not prevent the start of the server.
func (j *jail) try(name, detail string, err error) {
	if err != nil {
		j.note(name, Unavailable, err.Error())
		return
	}
	j.note(name, Enforced, detail)
}

// build builds the sandbox in the namespaces: the root, /proc, nesting, the network and the working directory.
func (j *jail) build() error {
	if j.plan.UserNS {
		j.note("user namespace", Enforced, "")
	} else {
		j.note("user namespace", Unavailable, "not allowed on this system; a daemon of root does not need it")
	}
	j.note("pid namespace", Enforced, "")
	asks := newPatience(answerPatience, giveUp, func() { tell(note{Building: true}) })
	v, err := newView(j.plan, j.argv[0], asks)
	if err != nil {
		return err
	}
	v.note = j.note
	if err := v.build(); err != nil {
		return err
	}
	asks.end()
	j.note("mount namespace", Enforced, "")
	j.home, j.program, j.scratch = v.home, v.readable(), v.scratch
	j.note("root by allow-list", Enforced, v.summary())
	if err := j.shutNested(); err != nil {
		return err
	}
	j.note("ipc and uts namespaces", Enforced, "")
	if err := j.buildNetwork(); err != nil {
		return err
	}
	return j.settle()
}

// shutNested forbids all processes of this user namespace to make further ones. No process exists there yet that
// could undo it. The filter of system calls refuses them too.
func (j *jail) shutNested() error {
	const name = "no nested namespaces"
	switch {
	case j.plan.Nested:
		j.note(name, Unavailable, "nested_sandbox is set")
		return nil
	case !j.plan.UserNS && auditArch == 0:
		return errors.New("neither a user namespace nor a filter of system calls is available on this system")
	case !j.plan.UserNS:
		j.note(name, Enforced, "by the filter of system calls")
		return nil
	}
	if err := writeProc("/proc/sys/user/max_user_namespaces", "0"); err != nil {
		return fmt.Errorf("preventing nested namespaces: %w", err)
	}
	j.note(name, Enforced, "")
	return nil
}

func (j *jail) buildNetwork() error {
	if j.plan.Network != NetworkNone {
		return nil
	}
	if err := raiseLoopback(); err != nil {
		return fmt.Errorf("raising the loopback interface: %w", err)
	}
	j.note("network", Enforced, "none")
	return nil
}

// settle makes the directory for temporary files, and enters the working directory: the configured one, or else the
// home.
func (j *jail) settle() error {
	if os.Geteuid() == 0 {
		if err := protectProc(); err != nil {
			return err
		}
	}
	if dir := os.Getenv("TMPDIR"); dir != "" {
		_ = os.MkdirAll(dir, 0o700) // if it cannot be made, it did not exist before either
	}
	dir := j.dir
	if j.plan.Dir == "" {
		dir = cmp.Or(j.home, "/")
	}
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("going to the working directory %s: %w", dir, err)
	}
	if j.plan.Fixed && (!j.folder.known || here() != j.folder) {
		return fmt.Errorf("the path of the working directory %s leads elsewhere by now", j.plan.Dir)
	}
	return nil
}

// protectProc makes the files of /proc with settings of the whole machine read-only for root. The kernel only checks
// the user id there, and a namespace does not change that.
func protectProc() error {
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi"} {
		path := "/proc/" + name
		if unix.Access(path, unix.F_OK) != nil {
			continue
		}
		if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("protecting %s: %w", path, err)
		}
		if err := readOnly(path, false); err != nil {
			return fmt.Errorf("protecting %s: %w", path, err)
		}
	}
	return nil
}

// limit sets the limits that the kernel enforces; watch enforces the others.
func (j *jail) limit() {
	l := j.plan.Limits
	j.try("no core files", "", limitDescriptors(0))
	if l.Files > 0 {
		j.try("descriptor limit", fmt.Sprintf("%d for each process", l.Files), limitDescriptors(l.Files))
	}
	if l.Memory > 0 {
		if j.plan.Cgroup {
			j.note(memoryLimit, Enforced, "by a cgroup: "+bytesText(l.Memory))
		} else {
			j.note(memoryLimit, Partial, "by watching: the server is ended above "+bytesText(l.Memory))
		}
	}
	if l.Processes > 0 {
		j.limitProcesses(l.Processes)
	}
}

func (j *jail) limitProcesses(most int) {
	switch {
	case j.plan.Cgroup:
		j.note(processLimit, Enforced, fmt.Sprintf("by a cgroup: %d", most))
	case os.Geteuid() == 0 || !j.plan.UserNS || !countsPerNamespace():
		j.note(processLimit, Partial, fmt.Sprintf("by watching: the server is ended above %d", most))
	default:
		j.try(processLimit, fmt.Sprintf("%d", most), limitProcesses(most))
	}
}
