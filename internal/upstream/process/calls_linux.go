//go:build linux && (amd64 || arm64)

package process

import "golang.org/x/sys/unix"

// afterLast is one more than the last system call that the list below covers. A newer call may be another way to do
// what is denied, so it fails with ENOSYS, which programs take for an old kernel. The numbers of x32 lie beyond it
// too.
const afterLast = unix.SYS_RSEQ_SLICE_YIELD + 1

// denied lists the system calls that strict refuses: looking into other processes, memory that no limit counts,
// mounts, namespaces, code in the kernel, keys, files by handle, and what only an administrator does.
var denied = append(deniedHere,
	// other processes
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
	unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
	// memory that no limit counts
	unix.SYS_MEMFD_SECRET,
	// mounts
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT,
	// namespaces
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_LISTNS,
	// code in the kernel, and ways round this filter
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
	unix.SYS_DELETE_MODULE,
	// keys
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	// files by handle, and settings of file systems
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_QUOTACTL,
	unix.SYS_QUOTACTL_FD, unix.SYS_ACCT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
	// the machine
	unix.SYS_REBOOT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME, unix.SYS_SETHOSTNAME,
	unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_PERSONALITY, unix.SYS_LSM_SET_SELF_ATTR,
)

// allowedContained lists those of these calls that contain allows a server: they affect its own processes, which are
// the only ones in its namespace.
var allowedContained = []uint32{unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PROCESS_MRELEASE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_PERSONALITY,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT, unix.SYS_UNSHARE}

// forNamespaces lists the calls that make namespaces, and change what is mounted in them.
var forNamespaces = []uint32{unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_SETNS, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME}
