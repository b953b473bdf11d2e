package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStream(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	sent := func(shown string, bodies ...string) string {
		w := httptest.NewRecorder()
		s := &stream{w: asItIs{w}, control: http.NewResponseController(w), shown: shown, last: now}
		for _, body := range bodies {
			require.NoError(t, s.send([]byte(body), now))
		}
		return w.Body.String()
	}
	was := digest([]byte("<p>old</p>"))

	t.Run("a browser that comes back gets nothing that it has", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, sent(was, "<p>old</p>", "<p>old</p>"))
		require.NotContains(t, sent(was, "<p>old</p>", "<p>new</p>"), "old")
	})

	t.Run("what looks different is sent once, with what it will be known by, line by line", func(t *testing.T) {
		t.Parallel()
		body := "<p>one</p>\r\n<p>two</p>"
		require.Equal(t, "id: "+digest([]byte(body))+"\ndata: <p>one</p>\ndata: <p>two</p>\n\n", sent(was, body, body))
	})
}
