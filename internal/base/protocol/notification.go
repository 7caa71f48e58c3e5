package protocol

// The notifications of changes, which belong to no call, whatever stream they
// came on.
const (
	ToolsChanged     = "notifications/tools/list_changed"
	PromptsChanged   = "notifications/prompts/list_changed"
	ResourcesChanged = "notifications/resources/list_changed"
	ResourceUpdated  = "notifications/resources/updated"
)

// IsChange reports one of them.
func IsChange(method string) bool {
	switch method {
	case ToolsChanged, PromptsChanged, ResourcesChanged, ResourceUpdated:
		return true
	}
	return false
}

// RootsChanged is the notification of a client whose roots have changed.
const RootsChanged = "notifications/roots/list_changed"

// The notifications about a task, of 2025-11-25 and of SEP-2663.
const (
	TaskStatus  = "notifications/tasks/status"
	TaskChanged = "notifications/tasks"
)
