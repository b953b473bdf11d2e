package asset_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/domain/asset"
)

func TestDigest(t *testing.T) {
	t.Parallel()

	digest := func(t *testing.T, m *asset.Manifest) string {
		t.Helper()
		d, err := m.Digest()
		require.NoError(t, err)
		require.Len(t, d, 64)
		return d
	}
	const plain = "version: 1\nassets: [{key: a/b, go: {}}, {key: a/c, go: {}, upstream: [a/b, a/d], tags: [x, y]}, {key: a/d, http: {url: 'https://example.com', headers: {x-a: b}}}]\npipelines: [{name: p, select: [a/b, a/c]}]"

	t.Run("manifests that mean the same have the same digest", func(t *testing.T) {
		t.Parallel()
		for name, same := range map[string]string{
			"other order":       "version: 1\npipelines: [{select: [a/c, a/b], name: p}]\nassets: [{key: a/d, http: {headers: {X-A: b}, url: 'https://example.com'}}, {key: a/c, tags: [y, x], upstream: [a/d, a/b], go: {}}, {key: a/b, go: {}}]",
			"defaults written":  "version: 1\nassets: [{key: a/b, go: {handler: a/b}, pool: default, timeout: 60m, retry: {}, tags: []}, {key: a/c, go: {}, upstream: [a/b, a/d], tags: [x, y]}, {key: a/d, http: {url: 'https://example.com', method: POST, headers: {x-a: b}}}]\npipelines: [{name: p, select: [a/b, a/c], priority: 5}]",
			"joined selections": "version: 1\nassets: [{key: a/b, go: {}}, {key: a/c, go: {}, upstream: [a/b, a/d], tags: [x, y]}, {key: a/d, http: {url: 'https://example.com', headers: {x-a: b}}}]\npipelines: [{name: p, select: ['a/c,  a/b a/c']}]",
		} {
			require.Equal(t, digest(t, parse(t, plain)), digest(t, parse(t, same)), name)
		}
	})

	t.Run("another meaning has another digest", func(t *testing.T) {
		t.Parallel()
		for _, other := range []string{
			"version: 1\nassets: [{key: a/b, go: {}}]",
			"version: 1\nassets: [{key: a/b, go: {}, timeout: 61m}]",
			"version: 1\nassets: [{key: a/b, go: {}, retry: {retry_on: []}}]",
			"version: 1\nassets: [{key: a/b, exec: {command: [a, b]}}]",
			"version: 1\nassets: [{key: a/b, exec: {command: [b, a]}}]",
		} {
			require.NotEqual(t, digest(t, parse(t, plain)), digest(t, parse(t, other)))
		}
	})

	t.Run("the digest of a manifest does not change with the version of Servo", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "95ff058d854ca86105cb82f7d73460c82f543460eae65eb86c0381d909224ba5", digest(t, readGood(t, "full.yaml")))
	})

	t.Run("a manifest made in Go has the digest of the same one in YAML, and is left as it is", func(t *testing.T) {
		t.Parallel()
		made := &asset.Manifest{Version: 1, Assets: []asset.Asset{
			{Key: "b/b", Upstream: []string{"b/a"}, Go: &asset.Go{}},
			{Key: "b/a", Timeout: asset.Duration(time.Hour), Exec: &asset.Exec{Command: []string{"x"}}},
		}}
		require.NoError(t, made.Validate())
		require.Equal(t, digest(t, parse(t, "version: 1\nassets: [{key: b/a, exec: {command: [x]}}, {key: b/b, upstream: [b/a], go: {}}]")), digest(t, made))
		require.Equal(t, "b/b", made.Assets[0].Key)
		require.Empty(t, made.Assets[0].Pool)
	})
}

func TestDiff(t *testing.T) {
	t.Parallel()

	before := parse(t, "version: 1\nassets: [{key: a/gone, go: {}}, {key: a/same, go: {}}, {key: a/other, go: {}}]\npipelines: [{name: gone}, {name: same}, {name: other}]")
	after := parse(t, "version: 1\nassets: [{key: a/new, go: {}}, {key: a/same, pool: default, go: {}}, {key: a/other, go: {}, pool: big}]\npipelines: [{name: new}, {name: same, priority: 5}, {name: other, priority: 6}]")

	t.Run("names what is added, removed and changed", func(t *testing.T) {
		t.Parallel()
		d, err := asset.Diff(before, after)
		require.NoError(t, err)
		require.Equal(t, asset.Difference{
			Assets:    asset.Changes{Added: []string{"a/new"}, Removed: []string{"a/gone"}, Changed: []string{"a/other"}},
			Pipelines: asset.Changes{Added: []string{"new"}, Removed: []string{"gone"}, Changed: []string{"other"}},
		}, d)
		require.False(t, d.Empty())
	})

	t.Run("nothing differs from itself", func(t *testing.T) {
		t.Parallel()
		d, err := asset.Diff(after, after)
		require.NoError(t, err)
		require.True(t, d.Empty())
	})

	t.Run("against nothing everything is new", func(t *testing.T) {
		t.Parallel()
		d, err := asset.Diff(nil, before)
		require.NoError(t, err)
		require.Equal(t, []string{"a/gone", "a/other", "a/same"}, d.Assets.Added)
		d, err = asset.Diff(before, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"gone", "other", "same"}, d.Pipelines.Removed)
	})
}

func TestDuration(t *testing.T) {
	t.Parallel()

	t.Run("reads and writes the short form", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]string{
			"1h": "1h", "60m": "1h", "90s": "1m30s", "1h30m": "1h30m", "3661s": "1h1m1s", "1500ms": "1s500ms",
			"5ms": "5ms", "24h": "24h", "0s": "0s", "1h1s": "1h0m1s", "100m": "1h40m", "61500ms": "1m1s500ms",
		} {
			d, err := asset.ParseDuration(text)
			require.NoError(t, err, text)
			require.Equal(t, want, d.String(), text)
		}
		for _, text := range []string{"", "1", "h", "1.5h", "-1h", "1d", "1h ", "1us", "9999999999999s", "999999999999h"} {
			_, err := asset.ParseDuration(text)
			require.Error(t, err, text)
		}
	})

	t.Run("survives JSON", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			d := asset.Duration(time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "ms")) * time.Millisecond)
			data, err := json.Marshal(d)
			require.NoError(t, err)
			var back asset.Duration
			require.NoError(t, json.Unmarshal(data, &back))
			require.Equal(t, d, back)
		})
		_, err := json.Marshal(asset.Duration(time.Microsecond))
		require.Error(t, err)
		_, err = json.Marshal(asset.Duration(-time.Second))
		require.Error(t, err)
	})
}
