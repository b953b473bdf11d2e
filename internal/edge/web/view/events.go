package view

import servov1 "go.arco.dev/servo/gen/servo/v1"

// MinuteForm is how a form sends a time.
const MinuteForm = "2006-01-02T15:04"

// EventsModel is a page of the log.
type EventsModel struct {
	Scope                        Scope
	Type, Subject, Since, Before string
	Events                       []EventRow
	First                        bool
	FirstAt, NextAt              string
}

// EventRow is an event, with where others like it are.
type EventRow struct {
	*servov1.RecordedEvent

	TypeAt, SubjectAt string
}

// eventTypes are beginnings of types that people look for.
func eventTypes() []string {
	return []string{
		"alert.", "alert_channel.", "config.", "deployment.", "event.", "key.", "pool.", "run.", "run.created", "run.ended", "run.breached", "signing_key.",
		"subscription.", "switch.", "task.", "task.failed", "template.", "tenant.", "workspace.",
	}
}
