package rest_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bare sends exactly what a test gives it: no Accept-Encoding of its own, and an
// answer as it came.
var bare = &http.Transport{DisableCompression: true} //nolint:gochecknoglobals // its connections are shared by the tests of the package

func zipped(t testing.TB, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

// zeros is gzip of so many zeros, made without holding them.
func zeros(t testing.TB, size int64) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := io.CopyN(w, endless{}, size)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestCompressedRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const encoding = "Content-Encoding: "
	large := `{"name":"` + strings.Repeat("x", 4<<20) + `"}`
	plan := zipped(t, `{"pipeline":"daily"}`)
	damaged := []byte(plan)
	damaged[len(damaged)-6] ^= 0xff // of the checksum
	bent := []byte(zipped(t, `{"pipeline":"daily","select":["`+strings.Repeat("abcdefgh", 20)+`"]}`))
	bent[12] ^= 0xff

	for _, c := range []struct {
		claim, body string
		headers     []string
		status      int
		code, field string
		detail      string
	}{
		{claim: "a compressed body is read", body: plan, headers: []string{encoding + "gzip"}, status: 200},
		{claim: "the former name is understood", body: plan, headers: []string{encoding + "X-GZIP"}, status: 200},
		{claim: "a body declared as plain is read as such", body: `{"pipeline":"daily"}`, headers: []string{encoding + "identity"}, status: 200},
		{claim: "gzip may come in parts", body: zipped(t, `{"pipeline":`) + zipped(t, `"daily"}`), headers: []string{encoding + "gzip"}, status: 200},
		{claim: "what was compressed is checked as ever", body: zipped(t, `{"pipelin":"daily"}`), headers: []string{encoding + "gzip"}, status: 400, code: "INVALID_ARGUMENT", field: "pipelin"},
		{claim: "what was compressed is JSON too", body: plan, headers: []string{encoding + "gzip", "Content-Type: text/plain"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE", field: "Content-Type"},
		{claim: "a body that is not gzip is refused", body: `{"pipeline":"daily"}`, headers: []string{encoding + "gzip"}, status: 400, code: "INVALID_ARGUMENT", field: "Content-Encoding", detail: "not gzip"},
		{claim: "something after the gzip is refused", body: plan + "more", headers: []string{encoding + "gzip"}, status: 400, code: "INVALID_ARGUMENT", field: "Content-Encoding"},
		{claim: "a body that breaks off is refused", body: plan[:len(plan)-9], headers: []string{encoding + "gzip"}, status: 400, code: "INVALID_ARGUMENT", field: "Content-Encoding", detail: "breaks off"},
		{claim: "a body of half a head is refused", body: plan[:5], headers: []string{encoding + "gzip"}, status: 400, code: "INVALID_ARGUMENT", field: "Content-Encoding", detail: "breaks off"},
		{claim: "another checksum is refused", body: string(damaged), headers: []string{encoding + "gzip"}, status: 400, code: "INVALID_ARGUMENT", field: "Content-Encoding", detail: "damaged"},
		{claim: "damage inside is refused", body: string(bent), headers: []string{encoding + "gzip"}, status: 400, code: "INVALID_ARGUMENT", field: "Content-Encoding"},
		{claim: "a body is as long as what it becomes", body: zipped(t, large), headers: []string{encoding + "gzip"}, status: 413, code: "TOO_LARGE"},
		{claim: "a bomb is refused", body: zeros(t, 512<<20), headers: []string{encoding + "gzip"}, status: 413, code: "TOO_LARGE"},
		{claim: "another coding is refused", body: "x", headers: []string{encoding + "br"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE", field: "Content-Encoding", detail: "br"},
		{claim: "two codings are refused", body: zipped(t, plan), headers: []string{encoding + "gzip, gzip"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE", field: "Content-Encoding"},
		{claim: "two codings in two headers are refused", body: zipped(t, plan), headers: []string{encoding + "gzip", encoding + "gzip"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE", field: "Content-Encoding"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			t.Parallel()
			res := call(t, w.url, "POST", "/v1/tenants/acme/runs:plan", c.body, c.headers...)
			require.Equal(t, c.status, res.StatusCode, "%s", res.body)
			if c.status == http.StatusOK {
				return
			}
			requireProblem(t, res)
			doc := res.json(t)
			require.Equal(t, c.code, doc["code"], "%s", res.body)
			if c.field != "" {
				require.Equal(t, c.field, doc["field"], "%s", res.body)
			}
			require.Contains(t, doc["detail"], c.detail)
			if c.field == "Content-Encoding" && c.status == http.StatusUnsupportedMediaType {
				require.Equal(t, "gzip", res.Header.Get("Accept-Encoding"), "what would be understood")
			}
		})
	}
}

// TestBombs counts what is allocated in this process for bodies that would fill it. It runs
// alone: others allocate too.
func TestBombs(t *testing.T) { //nolint:paralleltest // it measures
	w := newWorld(t)
	const bombs, size = 8, 256 << 20
	bomb := zeros(t, size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range bombs {
		require.Equal(t, http.StatusRequestEntityTooLarge, call(t, w.url, "POST", "/v1/tenants/acme/runs:plan", bomb, "Content-Encoding: gzip").StatusCode)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/bombs, uint64(64<<20), "a bomb is not decompressed beyond what a body may have")
}

func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const tenants = "/v1/tenants"
	for i := range 15 { // a list that is long enough
		require.Equal(t, http.StatusOK, call(t, w.url, "POST", tenants, fmt.Sprintf(`{"name":"a-tenant-with-a-long-name-%d"}`, i)).StatusCode)
	}

	t.Run("a caller gets the preferred encoding", func(t *testing.T) {
		t.Parallel()
		for accept, compressed := range map[string]bool{
			"":                           false,
			"gzip":                       true,
			"GZip":                       true,
			"x-gzip":                     true,
			"*":                          true,
			"br, gzip":                   true,
			"gzip, deflate, br, zstd":    true,
			"gzip;q=0":                   false,
			"gzip;q=0.000, *":            false,
			"gzip; q=0.2":                true,
			"gzip;q=0.5, identity":       false,
			"gzip;q=0.5, identity;q=0.4": true,
			"identity;q=0, *;q=0.1":      true,
			"*;q=0":                      false,
			"br":                         false,
			"identity":                   false,
			"gzip;q=high":                false,
			"gzip;q=7":                   false,
			"gzip;level=9":               false,
			";;;,,":                      false,
		} {
			var headers []string
			if accept != "" {
				headers = []string{"Accept-Encoding: " + accept}
			}
			res := call(t, w.url, "GET", "/openapi.json", "", headers...)
			require.Equal(t, http.StatusOK, res.StatusCode)
			require.Equal(t, compressed, res.Header.Get("Content-Encoding") == "gzip", "%q", accept)
			require.Contains(t, res.Header.Values("Vary"), "Accept-Encoding", "%q", accept)
		}
	})

	t.Run("a compressed answer is the same answer", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/openapi.json", "/docs", tenants} {
			plain := call(t, w.url, "GET", path, "")
			require.Empty(t, plain.Header.Get("Content-Encoding"))
			require.Greater(t, len(plain.body), 1024, "%s: this test needs a long answer", path)
			res := call(t, w.url, "GET", path, "", "Accept-Encoding: gzip")
			require.Equal(t, "gzip", res.Header.Get("Content-Encoding"), path)
			require.Less(t, len(res.body), len(plain.body))
			unzip, err := gzip.NewReader(bytes.NewReader(res.body))
			require.NoError(t, err)
			data, err := io.ReadAll(unzip)
			require.NoError(t, err)
			require.Equal(t, string(plain.body), string(data))
			require.Equal(t, plain.Header.Get("Content-Type"), res.Header.Get("Content-Type"))
		}
	})

	t.Run("a short answer is not worth it", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/v1/tenants/acme", "/v1/tenants/missing", "/v1/nothing"} {
			res := call(t, w.url, "GET", path, "", "Accept-Encoding: gzip")
			require.Empty(t, res.Header.Get("Content-Encoding"))
			require.Less(t, len(res.body), 1024)
			require.Contains(t, res.Header.Values("Vary"), "Accept-Encoding")
		}
	})

	t.Run("a long problem is compressed too", func(t *testing.T) {
		t.Parallel()
		body := `{"select":[` + strings.TrimSuffix(strings.Repeat("1,", 50), ",") + `]}`
		res := call(t, w.url, "POST", "/v1/tenants/acme/runs", body, "Accept-Encoding: gzip")
		require.Equal(t, http.StatusBadRequest, res.StatusCode)
		require.Equal(t, "gzip", res.Header.Get("Content-Encoding"))
		require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
	})

	t.Run("events are never compressed", func(t *testing.T) {
		t.Parallel()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/v1/tenants/acme/runs/"+w.run+"/events", http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set("Accept-Encoding", "gzip")
		res, err := bare.RoundTrip(req)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Empty(t, res.Header.Get("Content-Encoding"))
		require.Equal(t, []string{"Accept"}, res.Header.Values("Vary"))
		opening := make([]byte, len("retry: 1000\n\n"))
		_, err = io.ReadFull(res.Body, opening)
		require.NoError(t, err)
		require.Equal(t, "retry: 1000\n\n", string(opening))
	})

	t.Run("a HEAD answer has the headers of the body", func(t *testing.T) {
		t.Parallel()
		res := call(t, w.url, "HEAD", "/openapi.json", "", "Accept-Encoding: gzip")
		require.Equal(t, "gzip", res.Header.Get("Content-Encoding"))
		require.Empty(t, res.body)
	})

	t.Run("who has a document already does not get it again, compressed or not", func(t *testing.T) {
		t.Parallel()
		tag := call(t, w.url, "GET", "/openapi.json", "", "Accept-Encoding: gzip").Header.Get("ETag")
		require.True(t, strings.HasPrefix(tag, `W/"`), tag)
		res := call(t, w.url, "GET", "/openapi.json", "", "Accept-Encoding: gzip", "If-None-Match: "+tag)
		require.Equal(t, http.StatusNotModified, res.StatusCode)
		require.Empty(t, res.Header.Get("Content-Encoding"))
		require.Equal(t, http.StatusNotModified, call(t, w.url, "GET", "/openapi.json", "", "If-None-Match: "+tag).StatusCode)
	})

	t.Run("compressors are used again, and mix nothing up", func(t *testing.T) {
		t.Parallel()
		for i := range 20 {
			path := []string{"/openapi.json", tenants}[i%2]
			res := call(t, w.url, "GET", path, "", "Accept-Encoding: gzip")
			unzip, err := gzip.NewReader(bytes.NewReader(res.body))
			require.NoError(t, err, "%s", res.body)
			data, err := io.ReadAll(unzip)
			require.NoError(t, err)
			require.Contains(t, string(data), []string{`"openapi"`, `"tenants"`}[i%2])
		}
	})
}
