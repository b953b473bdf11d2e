package web

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
)

func TestStream(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	sent := func(shown string, bodies ...string) string {
		w := httptest.NewRecorder()
		s := &stream{w: uncompressed{w}, control: http.NewResponseController(w), shown: shown, last: now}
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

func TestLivePageLimits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

	t.Run("a tenant does not take the places of others", func(t *testing.T) {
		t.Parallel()
		s := newLivePages()
		leaves := make([]func(), maxTenantPages)
		for i := range leaves {
			var err error
			leaves[i], err = s.add(strconv.Itoa(i), "acme", func() {})
			require.NoError(t, err)
		}
		_, err := s.add("more", "acme", func() {})
		require.True(t, hasCode(err, fault.LimitExceeded))
		_, err = s.add("more", "brick", func() {})
		require.NoError(t, err)
		leaves[7]()
		_, err = s.add("more", "acme", func() {})
		require.NoError(t, err)
	})

	t.Run("a server has an end", func(t *testing.T) {
		t.Parallel()
		s := newLivePages()
		for i := range maxLivePages {
			_, err := s.add("", "", func() {})
			require.NoError(t, err, i)
		}
		_, err := s.add("", "", func() {})
		require.True(t, hasCode(err, fault.Unavailable))
	})

	t.Run("a session that ended is forgotten when its cookie would have expired", func(t *testing.T) {
		t.Parallel()
		s, cancelled := newLivePages(), 0
		leave, err := s.add("one", "acme", func() { cancelled++ })
		require.NoError(t, err)
		s.end("one", now.Add(time.Hour), now)
		require.Equal(t, 1, cancelled)
		leave()
		require.True(t, s.hasEnded("one"))
		_, err = s.add("one", "acme", func() {})
		require.ErrorIs(t, err, errLoggedOut)
		s.end("two", now.Add(2*time.Hour), now.Add(time.Hour))
		require.False(t, s.hasEnded("one"))
		require.Zero(t, s.open)
		require.Empty(t, s.tenants)
	})

	t.Run("a stream does not outlive its session", func(t *testing.T) {
		t.Parallel()
		v := &visit{now: now, session: session{Until: now.Add(time.Minute)}}
		require.Equal(t, time.Minute, v.streamLife())
		v.session.Until = now.Add(24 * time.Hour)
		require.Equal(t, streamLife, v.streamLife())
	})
}
