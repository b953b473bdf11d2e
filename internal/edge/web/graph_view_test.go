package web_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/browser"
	"go.arco.dev/servo/internal/edge/web/view"
)

// wideManifest has a pipeline of n assets: chains of ten.
func wideManifest(n int) string {
	var assets []string
	for i := range n {
		upstream := ""
		if i%10 > 0 {
			upstream = fmt.Sprintf(`"upstream": ["wide/a%d"], `, i-1)
		}
		assets = append(assets, fmt.Sprintf(`{"key": "wide/a%d", %s"go": {"handler": "x"}}`, i, upstream))
	}
	return `{"version": 1, "assets": [` + strings.Join(assets, ",") + `], "pipelines": [{"name": "shop", "select": ["wide/*"]}]}`
}

func TestGraphView(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployManifest(tenant, wideManifest(400))
	run := w.trigger(tenant)
	at := view.RunPath(tenant, run.GetId())

	t.Log("the graph fits, zooms, finds a box, and shows the paths of one")
	w.Go(at)
	w.Until(`document.querySelector("[data-graph]").graphView`)
	require.Equal(t, 400, w.Count("a.box"))
	fitted := browser.Eval[float64](w.Window, `document.querySelector("[data-graph]").graphView.scale`)
	require.Less(t, fitted, 1.0)
	require.Positive(t, w.Count("[data-graph-map] rect"))
	w.Click("[data-graph-do=in]")
	require.Greater(t, browser.Eval[float64](w.Window, `document.querySelector("[data-graph]").graphView.scale`), fitted)
	w.Type("[data-graph-search]", "wide/a57")
	w.Until(`document.querySelectorAll("a.box.is-hit").length === 1`)
	browser.Eval[bool](w.Window, `(document.querySelector("a.box.is-hit").focus(), true)`)
	w.Until(`document.querySelectorAll("a.box.on-path").length === 10`) // the chain of ten
	w.Until(`document.querySelector("[data-graph-panel]").innerText.includes("7 upstream, 2 downstream")`)

	t.Log("a refresh sends states, not the picture, and the open page applies them")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Server.URL+strings.Replace(at, "/ui/", "/ui/live/", 1), http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Accept-Encoding", "gzip")
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer answer.Body.Close()
	wire := &counted{from: answer.Body}
	plain, err := gzip.NewReader(wire)
	require.NoError(t, err)
	lines := bufio.NewReader(plain)
	for {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.NotContains(t, line, `class="box"`)
		if strings.HasPrefix(line, "data: ") && strings.Contains(line, "data-states=") {
			break
		}
	}
	require.Less(t, wire.bytes, 5<<10, "bytes of a refresh")
	lease := w.claim()
	w.Until(`[...document.querySelectorAll("a.box")].some((b) => b.querySelector("rect").classList.contains("s-run") && b.textContent.includes("running"))`)
	w.complete(lease)
	w.Until(`document.querySelectorAll("a.box rect.s-ok").length === 1`)
	require.Equal(t, 400, w.Count("a.box"))
}

// counted counts the bytes that are read.
type counted struct {
	from  interface{ Read(p []byte) (int, error) }
	bytes int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += n
	return n, err
}

func TestPalette(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addConfig(tenant, "nightly", nil)
	press := func(key string) {
		browser.Eval[bool](w.Window, `document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "`+key+`", ctrlKey: `+fmt.Sprint(key == "k")+`, bubbles: true}))`)
	}

	t.Log("the palette finds objects, pages and actions, and remembers recent pages")
	w.Go(view.ConfigPath(tenant, "", "nightly"))
	press("k")
	w.Until(`document.querySelector("dialog.palette").open`)
	w.Until(`[...document.querySelectorAll(".palette-entry")].some((e) => e.textContent.includes("Pause"))`)
	w.Type(".palette input", "shop")
	w.Until(`[...document.querySelectorAll(".palette-entry")].some((e) => e.querySelector(".kind").textContent === "pipeline")`)
	w.Press(kb.Escape)
	w.Until(`!document.querySelector("dialog.palette").open`)
	w.Go("/ui/runs")
	press("k")
	w.Until(`document.querySelector(".palette-entry")?.textContent.includes("nightly")`)
	w.Press("\r")
	w.Until(`location.pathname.endsWith("/configs/nightly")`)

	t.Log("a question mark lists the keys, and g leads to pages")
	press("?")
	w.See("Keyboard shortcuts")
	w.Press(kb.Escape)
	press("g")
	press("r")
	w.Until(`location.pathname === "/ui/runs"`)

	t.Log("times are shown in UTC if the reader wants it, on every page")
	w.Click("[data-zone-switch]")
	w.Go(view.ConfigPath(tenant, "", "nightly"))
	require.Equal(t, "UTC", w.Text("[data-zone-switch]"))
	require.Contains(t, browser.Eval[string](w.Window, `document.querySelector("rel-time[mode=local]").shadowRoot.textContent`), "UTC")
}
