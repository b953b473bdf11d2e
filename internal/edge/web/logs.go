package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/web/view"
)

// logRoutes are the log pages of runs and tasks, their data and their downloads.
func (s *Web) logRoutes() {
	s.show("/tenants/{tenant}/runs/{run}/logs", s.runLogs)
	s.mux.HandleFunc("GET /ui/logs/{tenant}/{run}", s.logTasks)
	s.mux.HandleFunc("GET /ui/logs/{tenant}/{run}/{task}", s.logChunks)
	s.mux.HandleFunc("GET /ui/logs/{tenant}/{run}/{task}/download", s.downloadLog)
}

// runLogs is the page of the logs of a run, or of one task and attempt. The browser reads the lines: it
// keeps those that are visible in the document.
func (s *Web) runLogs(v *visit) (view.Page, error) {
	tenant, run := v.scope.Tenant, v.PathValue("run")
	found, err := s.api.runs.GetRun(v.ctx, &servov1.GetRunRequest{Tenant: tenant, Run: run})
	if err != nil {
		return view.Page{}, err
	}
	m := view.LogsModel{Run: found, Attempt: v.query("attempt")}
	if task := v.query("task"); task != "" {
		if m.Task, err = s.api.tasks.GetTask(v.ctx, &servov1.GetTaskRequest{Tenant: tenant, Run: run, Task: task}); err != nil {
			return view.Page{}, err
		}
	}
	return view.Page{Title: "Logs of " + found.GetPipeline(), Section: "runs", Script: "logs.js", Body: view.Logs(m)}, nil
}

// logTask is a task whose log a page reads.
type logTask struct {
	ID    string `json:"id"`
	Label string `json:"label"`
	Done  bool   `json:"done"` // the log is complete
}

// logTasksResponse is a page of the tasks of a run that have attempts.
type logTasksResponse struct {
	Tasks []logTask `json:"tasks"`
	Next  string    `json:"next,omitempty"`
	Done  bool      `json:"done"` // the run has ended
}

// logTasks responds with the tasks of a run that have a log.
func (s *Web) logTasks(w http.ResponseWriter, r *http.Request) {
	s.answerJSON(w, r, func(v *visit) (any, error) {
		run, err := s.api.runs.GetRun(v.ctx, &servov1.GetRunRequest{Tenant: v.scope.Tenant, Run: v.PathValue("run")})
		if err != nil {
			return nil, err
		}
		list, err := s.api.tasks.ListTasks(v.ctx, &servov1.ListTasksRequest{Tenant: v.scope.Tenant, Run: run.GetId(), PageSize: 100, PageToken: v.token()})
		if err != nil {
			return nil, err
		}
		answer := logTasksResponse{Tasks: []logTask{}, Next: list.GetNextPageToken(), Done: run.GetFinishedAt() != nil}
		for _, t := range list.GetTasks() {
			if t.GetAttempt() > 0 {
				answer.Tasks = append(answer.Tasks, logTask{ID: t.GetId(), Label: strings.TrimSpace(t.GetAsset() + " " + t.GetPartition()), Done: t.GetFinishedAt() != nil})
			}
		}
		return answer, nil
	})
}

// logChunksResponse is a part of the log of an attempt.
type logChunksResponse struct {
	Attempt int32  `json:"attempt"`
	Text    string `json:"text"`
	Next    string `json:"next,omitempty"`
	More    bool   `json:"more"` // the next part can be read at once
	Dropped int64  `json:"dropped,omitempty"`
}

// logChunks responds with a part of the log of an attempt.
func (s *Web) logChunks(w http.ResponseWriter, r *http.Request) {
	const chunks = 100
	s.answerJSON(w, r, func(v *visit) (any, error) {
		attempt, _ := strconv.ParseInt(v.query("attempt"), 10, 32) // 0 is the latest
		list, err := s.api.tasks.ListTaskLogs(v.ctx, &servov1.ListTaskLogsRequest{
			Tenant: v.scope.Tenant, Run: v.PathValue("run"), Task: v.PathValue("task"), Attempt: int32(attempt), PageSize: chunks, PageToken: v.token(),
		})
		if err != nil {
			return nil, err
		}
		var text strings.Builder
		for _, c := range list.GetChunks() {
			text.WriteString(c.GetText())
		}
		return logChunksResponse{
			Attempt: list.GetAttempt(), Text: text.String(), Next: list.GetNextPageToken(), More: len(list.GetChunks()) > 0 && list.GetNextPageToken() != "", Dropped: list.GetDroppedBytes(),
		}, nil
	})
}

// downloadLog responds with the log of an attempt as a file, without control sequences of terminals.
func (s *Web) downloadLog(w http.ResponseWriter, r *http.Request) {
	v, err := s.visit(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	attempt, _ := strconv.ParseInt(v.query("attempt"), 10, 32) // 0 is the latest
	req := &servov1.ListTaskLogsRequest{Tenant: v.scope.Tenant, Run: v.PathValue("run"), Task: v.PathValue("task"), Attempt: int32(attempt), PageSize: 100}
	for first := true; ; first = false {
		list, err := s.api.tasks.ListTaskLogs(v.ctx, req)
		if err != nil {
			if first {
				s.fail(w, r, err)
			}
			return
		}
		if first {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="task-%s-attempt-%d.log"`, v.PathValue("task"), list.GetAttempt()))
		}
		for _, c := range list.GetChunks() {
			if _, err := w.Write([]byte(view.PlainText(c.GetText()))); err != nil {
				return
			}
		}
		if list.GetNextPageToken() == "" || len(list.GetChunks()) == 0 {
			return
		}
		req.PageToken = list.GetNextPageToken()
	}
}

// answerJSON responds with data for the script of a page.
func (s *Web) answerJSON(w http.ResponseWriter, r *http.Request, read func(v *visit) (any, error)) {
	v, err := s.visit(r)
	var answer any
	if err == nil {
		answer, err = read(v)
	}
	status := http.StatusOK
	if err != nil {
		code, doc := docOf(err)
		if errors.Is(err, errLoggedOut) || hasCode(err, fault.Unauthenticated) {
			code = http.StatusUnauthorized
		}
		status, answer = code, map[string]string{"error": view.Violation(doc.Message, doc.Remedy)}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	var to io.WriteCloser = uncompressed{w}
	if len(body) >= minCompressed && compress(w, r) {
		to = newGzipped(w, s.gzip)
	}
	w.WriteHeader(status)
	if _, err := to.Write(body); err == nil {
		_ = to.Close() // a browser that has left reads nothing
	}
}
