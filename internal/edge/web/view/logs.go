package view

import (
	"strconv"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// LogsModel is the logs of a run, or of one task.
type LogsModel struct {
	Run     *servov1.Run
	Task    *servov1.Task // nil for all tasks of the run
	Attempt string        // "" is the latest
}

// LogsPath is the page of the logs of a run; with a task of that task alone.
func LogsPath(tenant, run, task string) string {
	path := RunPath(tenant, run) + "/logs"
	if task != "" {
		path += "?task=" + task
	}
	return path
}

func (m LogsModel) title() string {
	if m.Task != nil {
		return "Log of " + m.Task.GetAsset() + " " + m.Task.GetPartition()
	}
	return "Logs of " + m.Run.GetPipeline()
}

func (m LogsModel) crumbs() []Link {
	links := []Link{{m.Run.GetPipeline() + " " + ShortID(m.Run.GetId()), RunPath(m.Run.GetTenant(), m.Run.GetId())}}
	if m.Task != nil {
		links = append(links, Link{"Logs", LogsPath(m.Run.GetTenant(), m.Run.GetId(), "")})
	}
	return runsCrumbs(m.Run.GetTenant(), links...)
}

// source is the address of the data of the page.
func (m LogsModel) source() string {
	return Path("logs", m.Run.GetTenant(), m.Run.GetId())
}

// attempts are the attempts of the task, the latest first.
func (m LogsModel) attempts() (options []Option) {
	for n := m.Task.GetAttempt(); n > 0 && n > m.Task.GetAttempt()-50; n-- {
		text := strconv.Itoa(int(n))
		label := "attempt " + text
		if n == m.Task.GetAttempt() {
			text, label = "", label+" (latest)"
		}
		options = append(options, Option{text, label})
	}
	return options
}

// download is the address of the log of the task as a file.
func (m LogsModel) download() string {
	path := m.source() + "/" + m.Task.GetId() + "/download"
	if m.Attempt != "" {
		path += "?attempt=" + m.Attempt
	}
	return path
}

// command prints the logs in a terminal.
func (m LogsModel) command() string {
	if m.Task != nil {
		return "servo tasks logs " + m.Run.GetId() + " " + m.Task.GetId() + " --tenant " + m.Run.GetTenant()
	}
	return "servo runs watch " + m.Run.GetId() + " --tenant " + m.Run.GetTenant()
}
