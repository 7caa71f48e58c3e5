package protocol

// The notifications of changes. They do not belong to the call on whose stream they are received.
const (
	ToolsChanged     = "notifications/tools/list_changed"
	PromptsChanged   = "notifications/prompts/list_changed"
	ResourcesChanged = "notifications/resources/list_changed"
	ResourceUpdated  = "notifications/resources/updated"
)

// IsChange reports whether method is one of the notifications of changes.
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
