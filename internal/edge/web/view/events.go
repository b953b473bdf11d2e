package view

import servov1 "go.arco.dev/servo/gen/servo/v1"

// MinuteForm is the format of a time in a form.
const MinuteForm = "2006-01-02T15:04"

// EventsModel is a page of the event log.
type EventsModel struct {
	Paging

	Scope                        Scope
	Type, Subject, Since, Before string
	Events                       []EventRow
}

// EventRow is an event with the addresses of similar events.
type EventRow struct {
	*servov1.RecordedEvent

	TypeAt, SubjectAt string
}

// eventTypes are suggestions for the filter by type.
func eventTypes() []string {
	return []string{
		"alert.", "alert_channel.", "config.", "deployment.", "event.", "key.", "pool.", "run.", "run.created", "run.ended", "run.breached", "signing_key.",
		"subscription.", "switch.", "task.", "task.failed", "template.", "tenant.", "workspace.",
	}
}
