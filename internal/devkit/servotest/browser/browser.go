// Package browser drives a real browser over the pages. A browser is started once for the tests
// of a package; each test has a window of its own, with its own cookies, and fails if a page
// writes an error to the console, violates its content security policy, or requests a resource that
// the server does not have.
package browser

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Browser is a running browser.
type Browser struct {
	ctx   context.Context //nolint:containedctx // chromedp keeps the browser in it
	close []func()
}

// patience is how long a page may take for what a test waits for: long, for slow machines.
const patience = 60 * time.Second

// Start starts a browser. Close ends it.
func Start() (*Browser, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	profile, err := os.MkdirTemp("", "servo-browser-")
	if err != nil {
		return nil, err
	}
	options := append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...)
	options = append(options,
		chromedp.ExecPath(program), chromedp.UserDataDir(profile), chromedp.NoFirstRun, chromedp.DisableGPU, chromedp.WindowSize(1280, 900),
		chromedp.NoSandbox, // the pages are our own, and tests may run as root
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(patience),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b := &Browser{ctx: ctx, close: []func(){cancel, stop, func() { _ = os.RemoveAll(profile) }}}
	if err := chromedp.Do(ctx); err != nil { // without a timeout: its context is the browser's life
		b.Close()
		return nil, fmt.Errorf("start the browser %s: %w", program, err)
	}
	return b, nil
}

// find is the browser's program.
func find() (string, error) {
	if named := os.Getenv("SERVO_BROWSER"); named != "" {
		return named, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium is installed: run make setup")
}

// Close ends the browser.
func (b *Browser) Close() {
	for _, f := range b.close {
		f()
	}
}

// Window is one window of a test, with cookies of its own.
type Window struct {
	t    testing.TB
	ctx  context.Context //nolint:containedctx // chromedp keeps the window in it
	base string

	mu       sync.Mutex
	troubles []string
	allowed  []string
}

// Open opens a window for a test. What goes wrong on its pages fails the test at its end.
func (b *Browser) Open(t testing.TB, base string) *Window {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	w := &Window{t: t, ctx: ctx, base: base}
	require.NoError(t, chromedp.Do(ctx))
	var listening sync.WaitGroup
	listen(w, &listening, chromedp.Events(ctx, log.EntryAdded), w.entry)
	listen(w, &listening, chromedp.Events(ctx, runtime.ExceptionThrown), func(e runtime.EventExceptionThrown) {
		w.trouble(fmt.Sprintf("exception: %+v", e.ExceptionDetails))
	})
	listen(w, &listening, chromedp.Events(ctx, runtime.ConsoleAPICalled), w.console)
	listen(w, &listening, chromedp.Events(ctx, network.RequestWillBeSent), w.request)
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable} {
		_, err := chromedp.Call(ctx, enable, cdp.Empty{})
		require.NoError(t, err)
	}
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		listening.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Empty(t, w.troubles, "what the browser complained of")
	})
	return w
}

// listen receives events until the window is closed.
func listen[E any](w *Window, until *sync.WaitGroup, events iter.Seq2[E, error], received func(E)) {
	until.Go(func() {
		for e, err := range events {
			if err != nil {
				if w.ctx.Err() == nil {
					w.trouble("events of the browser cannot be read: " + err.Error())
				}
				return
			}
			received(e)
		}
	})
}

// Allow permits errors with this text, such as the status of a page that is an error by design.
func (w *Window) Allow(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = append(w.allowed, text)
}

func (w *Window) entry(e log.EventEntryAdded) {
	if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
		w.trouble(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
	}
}

func (w *Window) console(e runtime.EventConsoleAPICalled) {
	if e.Type != runtime.ConsoleAPICalledTypeError && e.Type != runtime.ConsoleAPICalledTypeWarning {
		return
	}
	var parts []string
	for _, a := range e.Args {
		parts = append(parts, string(a.Value)+a.Description)
	}
	w.trouble("console: " + strings.Join(parts, " "))
}

func (w *Window) request(e network.EventRequestWillBeSent) {
	if url := e.Request.URL; !strings.HasPrefix(url, w.base) && !strings.HasPrefix(url, "data:") && url != "about:blank" {
		w.trouble("a request to somewhere else: " + url)
	}
}

func (w *Window) trouble(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.allowed {
		if strings.Contains(text, a) {
			return
		}
	}
	w.troubles = append(w.troubles, text)
}

// Do does something in the window.
func (w *Window) Do(steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	require.NoError(w.t, chromedp.Do(ctx, steps...))
}

// Get does something in the window that gives a value.
func Get[T any](w *Window, a chromedp.Action[T]) T {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, a)
	require.NoError(w.t, err)
	return value
}

// Eval is what a script gives, such as the number of elements.
func Eval[T any](w *Window, script string) T {
	w.t.Helper()
	return Get(w, chromedp.Evaluate[T](script))
}

// Go opens a page.
func (w *Window) Go(path string) {
	w.t.Helper()
	w.Do(chromedp.Navigate(w.base+path), chromedp.WaitReady(chromedp.CSS("main")))
}

// Size makes the window as large as a screen.
func (w *Window) Size(width, height int64) {
	w.t.Helper()
	w.Do(chromedp.EmulateViewport(width, height))
}

// Text is the text of the first element of a selector.
func (w *Window) Text(selector string) string {
	w.t.Helper()
	return Get(w, chromedp.Text(chromedp.CSS(selector)))
}

// See waits until the page shows a text.
func (w *Window) See(text string) {
	w.t.Helper()
	w.Until(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// Until waits until a script gives true on a page that is loaded to its end: an address is that
// of the next page before it is complete.
func (w *Window) Until(script string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	// Asked from outside, since a page that is left takes what it was asked with it.
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.readyState !== "loading" && Boolean(`+script+")"))
		if err == nil && ok {
			return
		}
		select {
		case <-ctx.Done():
			text, _ := chromedp.Run(w.ctx, chromedp.Evaluate[string]("document.body.innerText.slice(0, 3000)"))
			require.Fail(w.t, "condition not met", "%s (%v); the text of the page:\n%s", script, err, text)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Click clicks on the first element of a selector.
func (w *Window) Click(selector string) {
	w.t.Helper()
	w.Do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// Type types into a field. It sends the keys to the focus: chromedp.SendKeys reads the attributes of the
// element without a lock, while scripts of the page change them.
func (w *Window) Type(selector, text string) {
	w.t.Helper()
	w.Do(chromedp.WaitVisible(chromedp.CSS(selector)))
	require.True(w.t, Eval[bool](w, fmt.Sprintf("(e => { e.focus(); return document.activeElement === e })(document.querySelector(%q))", selector)), "%s takes the focus", selector)
	w.Do(chromedp.KeyEvent(text))
}

// Press presses a key where the focus is.
func (w *Window) Press(key string) {
	w.t.Helper()
	w.Do(chromedp.KeyEvent(key))
}

// Snap takes a picture of what the window shows, as a JPEG.
func (w *Window) Snap(path string) {
	w.t.Helper()
	picture := Get(w, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		format, quality := page.CaptureScreenshotFormatJpeg, int64(85)
		taken, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: format, Quality: &quality})
		return taken.Data, err
	})
	require.NoError(w.t, os.WriteFile(path, picture, 0o644)) //nolint:gosec // pictures of pages are public
}

// Address is where the window is, without the server.
func (w *Window) Address() string {
	w.t.Helper()
	return Eval[string](w, "location.pathname + location.search")
}

// Count is how many elements a selector has.
func (w *Window) Count(selector string) int {
	w.t.Helper()
	return Eval[int](w, fmt.Sprintf("document.querySelectorAll(%q).length", selector))
}
