package rest

import (
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/docs"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

// TestErrorPages follows the type of each problem, as a reader of one would.
func TestErrorPages(t *testing.T) {
	t.Parallel()
	e := edgeOver(t, &services{}, nil)
	get := func(t *testing.T, method, path string) *httptest.ResponseRecorder {
		t.Helper()
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		return w
	}
	list := get(t, http.MethodGet, errorsPath)
	require.Equal(t, http.StatusOK, list.Code)
	// TestDocumentation of package problem holds that the table has every code.
	rows := regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(docs.Errors, -1)
	require.Greater(t, len(rows), 15)
	for _, row := range rows {
		code := fault.Code(row[1])
		shown := get(t, http.MethodGet, problem.TypeOf(code))
		require.Equal(t, http.StatusOK, shown.Code, code)
		require.Equal(t, "text/html; charset=utf-8", shown.Header().Get("Content-Type"))
		require.Contains(t, shown.Header().Get("Content-Security-Policy"), "default-src 'none'")
		text := html.UnescapeString(shown.Body.String())
		require.Contains(t, text, "<code>"+string(code)+"</code>")
		require.Contains(t, text, "<h1>"+problem.TitleOf(code)+"</h1>")
		require.NotContains(t, text, "`")
		require.Contains(t, list.Body.String(), `href="`+problem.TypeOf(code)+`"`)
	}
	require.Equal(t, http.StatusNotFound, get(t, http.MethodGet, errorsPath+"/unheard-of").Code)
	require.Equal(t, http.StatusMethodNotAllowed, get(t, http.MethodPost, problem.TypeOf(fault.NotFound)).Code)
}
