package view

// Look is the appearance of a state: a tone, a shape and a word. Each alone identifies the state,
// for visitors who do not see colours or shapes.
type Look struct{ Tone, Shape, Label string }

// The tones; their style classes are t-, f- and s- with the tone.
const (
	toneOK   = "ok"
	toneBad  = "bad"
	toneRun  = "run"
	toneWait = "wait"
	toneLate = "late"
	toneOff  = "off"
	toneIdle = "idle"
)

// looks are the looks of all states of the API.
func looks() map[string]Look {
	return map[string]Look{
		"PENDING":              {toneIdle, "ring", "pending"},
		"READY":                {toneWait, "half", "ready"},
		"QUEUED":               {toneWait, "half", "queued"},
		"DISPATCHED":           {toneRun, "play", "dispatched"},
		"RUNNING":              {toneRun, "play", "running"},
		"RETRY_WAIT":           {toneLate, "again", "retry wait"},
		"CANCELLING":           {toneOff, "square", "cancelling"},
		"SUCCEEDED":            {toneOK, "check", "succeeded"},
		"FAILED":               {toneBad, "cross", "failed"},
		"TIMED_OUT":            {toneBad, "clock", "timed out"},
		"SKIPPED":              {toneIdle, "dash", "skipped"},
		"CANCELLED":            {toneOff, "square", "cancelled"},
		"ACTIVE":               {toneOK, "check", "active"},
		"PAUSED":               {toneWait, "pause", "paused"},
		"DISABLED":             {toneBad, "cross", "disabled"},
		"FIRED":                {toneOK, "check", "fired"},
		"SKIPPED_OVERLAP":      {toneWait, "dash", "skipped: overlap"},
		"SKIPPED_PAUSED":       {toneIdle, "pause", "skipped: paused"},
		"SKIPPED_DISABLED":     {toneBad, "dash", "skipped: disabled"},
		"SKIPPED_QUOTA":        {toneLate, "dash", "skipped: quota"},
		"SKIPPED_DEPENDENCY":   {toneLate, "dash", "skipped: dependency"},
		"SKIPPED_CATCHUP":      {toneIdle, "dash", "skipped: catch-up"},
		"SKIPPED_EDITED":       {toneIdle, "dash", "skipped: edited"},
		"SKIPPED_NO_PARTITION": {toneIdle, "dash", "skipped: no new partition"},
		"ERROR":                {toneBad, "cross", "error"},
		"RETIRING":             {toneWait, "half", "retiring"},
		"EXPIRED":              {toneIdle, "dash", "expired"},
		"REVOKED":              {toneBad, "cross", "revoked"},
		"LOW":                  {toneIdle, "ring", "low"},
		"MEDIUM":               {toneWait, "half", "medium"},
		"HIGH":                 {toneLate, "up", "high"},
		"CRITICAL":             {toneBad, "up", "critical"},
		"OPEN":                 {toneBad, "up", "open"},
		"RESOLVED":             {toneOK, "check", "resolved"},
		"LATE":                 {toneLate, "clock", "late"},
		"CLOSED":               {toneOK, "check", "closed"},
		"ROLLING":              {toneRun, "play", "rolling"},
		"COMPLETED":            {toneOK, "check", "completed"},
		"ROLLED_BACK":          {toneBad, "cross", "rolled back"},
		"REACHED":              {toneOK, "check", "on the new release"},
		"CURRENT":              {toneRun, "play", "current"},
		"LATER":                {toneIdle, "ring", "later"},
		"RETURNED":             {toneOff, "again", "on the old release"},
		"ADDED":                {toneOK, "check", "added"},
		"CHANGED":              {toneWait, "half", "changed"},
		"REMOVED":              {toneBad, "dash", "removed"},
		"HALF_OPEN":            {toneWait, "half", "half open"},
	}
}

// LookOf is the look of a state.
func LookOf(state string) Look {
	if l, ok := looks()[state]; ok {
		return l
	}
	return Look{toneIdle, "ring", Words(state)}
}
