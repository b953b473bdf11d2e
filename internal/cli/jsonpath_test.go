package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJSONPath(t *testing.T) {
	t.Parallel()
	value := map[string]any{
		"name":  "daily",
		"size":  12345678901,
		"spec":  map[string]any{"labels": map[string]any{"a.b": "dotted", "x": "y"}},
		"tasks": []any{map[string]any{"id": "one"}, map[string]any{"id": "two"}},
	}
	for expression, want := range map[string]string{
		".name":                  "daily\n",
		"{.name}":                "daily\n",
		"$.name":                 "daily\n",
		"name":                   "daily\n",
		".size":                  "12345678901\n",
		".tasks[0].id":           "one\n",
		".tasks[-1].id":          "two\n",
		"{.tasks[*].id}":         "one\ntwo\n",
		".spec.labels['a.b']":    "dotted\n",
		`.spec["labels"].x`:      "y\n",
		".spec.labels.*":         "dotted\ny\n",
		".spec.labels":           `{"a.b":"dotted","x":"y"}` + "\n",
		"{.tasks[0]}":            `{"id":"one"}` + "\n",
		".tasks[0].id[0]":        "",
		".tasks[9]":              "",
		".nothing":               "",
		".spec.labels.x.further": "",
	} {
		var out strings.Builder
		err := renderPath(&out, expression, value)
		if want == "" {
			require.ErrorContains(t, err, "nothing is at the JSONPath", expression)
			continue
		}
		require.NoError(t, err, expression)
		require.Equal(t, want, out.String(), expression)
	}
	for _, bad := range []string{".a[", ".a[b]", "..", ".a..b", ".a]", "{.a}}x", "[?(@.x)]"} {
		_, err := parseJSONPath(bad)
		require.Error(t, err, bad)
	}
	var out strings.Builder
	require.NoError(t, renderPath(&out, "[*].id", []any{}), "an empty list has nothing to show")
	require.Empty(t, out.String())
}

func TestNames(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]any{
		"daily": map[string]any{"name": "daily", "id": "1"},
		"1":     map[string]any{"id": "1"},
		"2":     map[string]any{"run": map[string]any{"id": "2"}, "already_running": true},
	} {
		var out strings.Builder
		require.NoError(t, renderNames(&out, value))
		require.Equal(t, want+"\n", out.String())
	}
	var out strings.Builder
	require.NoError(t, renderNames(&out, []any{map[string]any{"key": "a/b"}, map[string]any{"name": "c"}}))
	require.Equal(t, "a/b\nc\n", out.String())
	require.Error(t, renderNames(&out, map[string]any{"size": 1}))
}

func TestPartsOfIDs(t *testing.T) {
	t.Parallel()
	a, b := "01a1de05-1020-7000-b9b9-668e0aad8a59", "01a1de05-1021-7000-b9b9-668e0bad8a59"
	find := func(part string) (string, error) { return oneOf("RUN", "run", part, []string{a, b, a}, "look") }
	for part, want := range map[string]string{"e0aad8a59": a, "0bad8a59": b, "01a1de051020": a, "01a1de05-1021": b, a: a} {
		found, err := find(part)
		require.NoError(t, err, part)
		require.Equal(t, want, found)
	}
	_, err := find("ad8a59")
	require.ErrorContains(t, err, "2 runs begin or end with ad8a59")
	_, err = find("123456")
	require.ErrorContains(t, err, "no run begins or ends with 123456")
	require.Equal(t, []string{"aad8a59", "bad8a59"}, uniqueTails([]string{a, b}), "as long as is needed to distinguish them")

	from, to, ok := timesOf("01a1de05-10")
	require.True(t, ok)
	require.Equal(t, int64(0x01a1de051000), from.AsTime().UnixMilli())
	require.Equal(t, int64(0x01a1de051100), to.AsTime().UnixMilli())
	_, _, ok = timesOf("01a1de")
	require.False(t, ok, "too few digits for a time")
	_, _, ok = timesOf("ffffffffff")
	require.False(t, ok, "no time that a timestamp can have")
}
