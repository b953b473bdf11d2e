package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/edge/web/view"
)

// logText adds a chunk to the log of a task.
func (w *world) logText(l *servov1.Lease, seq int64, text string) {
	w.t.Helper()
	w.report(&servov1.ReportItem{Lease: l.GetLease(), Action: &servov1.ReportItem_Log{Log: &servov1.LogChunk{Seq: seq, Text: text}}})
}

func TestLogs(t *testing.T) {
	t.Parallel()

	t.Run("lines of an attempt: colours, level, search, links, and those that follow", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		lease := w.claim()
		text := ""
		for i := range 300 {
			text += fmt.Sprintf("2026-01-01T00:00:00.000Z INFO line %d\n", i+1)
		}
		w.logText(lease, 1, text+"2026-01-01T00:00:01.000Z ERROR \x1b[31mthe shop is closed\x1b[0m\n  at door.py:7\n")
		w.Go(view.LogsPath(tenant, run.GetId(), lease.GetTask()))
		w.Until(`document.querySelector("[data-log-status]").textContent.includes("302 lines")`)
		w.Until(`document.querySelector(".log-line .ansi-red")?.textContent === "the shop is closed"`) // the end is shown
		require.Less(t, w.Count(".log-line"), 200, "only the visible lines are in the document")

		w.logText(lease, 2, "2026-01-01T00:00:02.000Z WARN one more\n")
		w.Until(`document.querySelector("[data-log-lines]").innerText.includes("one more")`) // without a reload

		w.Type("[data-log-search]", "closed")
		w.Until(`document.querySelectorAll(".log-line").length === 1 && document.querySelector(".log-line mark").textContent === "closed"`)
		w.Until(`document.querySelector("[data-log-matches]").textContent.includes("1 of 303")`)
		browser.Eval[bool](w.Window, `(() => { const s = document.querySelector("[data-log-search]"); s.value = ""; s.dispatchEvent(new Event("input")); const l = document.querySelector("[data-log-level]"); l.value = "ERROR"; l.dispatchEvent(new Event("change")); return true })()`)
		w.Until(`document.querySelectorAll(".log-line").length === 2`) // with the line that continues it

		w.Go(view.LogsPath(tenant, run.GetId(), lease.GetTask()) + "#L42")
		w.Until(`document.querySelector(".log-line.is-target")?.innerText.includes("line 42")`)

		answer, body := get(t, w.Server, "/ui/logs/"+tenant+"/"+run.GetId()+"/"+lease.GetTask()+"/download", nil)
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Contains(t, answer.Header.Get("Content-Disposition"), "attachment")
		require.Contains(t, body, "ERROR the shop is closed\n")
	})

	t.Run("the logs of a run are ordered by time, each line with its task", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		orders := w.claim()
		w.logText(orders, 1, "2026-01-01T00:00:05.000Z INFO second\n")
		w.complete(orders)
		next := w.claim()
		w.logText(next, 1, "2026-01-01T00:00:01.000Z INFO first\n2026-01-01T00:00:09.000Z INFO third\n")
		w.Go(view.LogsPath(tenant, run.GetId(), ""))
		w.Until(`document.querySelectorAll(".log-line").length === 3`)
		require.Regexp(t, "(?s)first.*second.*third", w.Text("[data-log-lines]"))
		require.Contains(t, w.Text("[data-log-lines]"), "shop/orders")
		w.Click(".log-number")
		w.Until(`document.querySelector(".log-line.is-target")?.innerText.includes("first")`)
	})

	t.Run("a million lines are kept, a hundred are in the document", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		run := w.trigger(tenant)
		lease := w.claim()
		w.logText(lease, 1, "begin\n")
		w.Go(view.LogsPath(tenant, run.GetId(), lease.GetTask()))
		w.Until(`document.querySelectorAll(".log-line").length === 1`)
		browser.Eval[bool](w.Window, `(() => { const v = document.querySelector("[data-log]").logView; let s = ""; for (let i = 2; i <= 100000; i++) s += "line of a task " + i + "\n"; v.append(s); for (let k = 0; k < 9; k++) v.append(s + "x\n"); return true })()`)
		require.Equal(t, 1_000_000, browser.Eval[int](w.Window, `document.querySelector("[data-log]").logView.lines.length`))
		require.Less(t, w.Count(".log-line"), 200)
		browser.Eval[bool](w.Window, `(document.querySelector("[data-log-lines]").scrollTop = 9e6, true)`)
		w.Until(`Number(document.querySelector(".log-number").textContent) > 400000`)
		require.Less(t, w.Count(".log-line"), 200)
		w.Type("[data-log-search]", "task 77777")
		w.Until(`document.querySelector("[data-log-matches]").textContent.startsWith("10 of")`)
	})

	t.Run("data of another tenant's log is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addTenant("globex")
		run := w.trigger(tenant)
		answer, body := get(t, w.Server, "/ui/logs/globex/"+run.GetId(), nil)
		require.Equal(t, http.StatusNotFound, answer.StatusCode)
		require.True(t, strings.HasPrefix(body, `{"error"`), body)
	})
}
