package asset_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
)

func TestLockKey(t *testing.T) {
	t.Parallel()
	compile := func(t testing.TB, lock *asset.Lock) *asset.LockKey {
		t.Helper()
		key, err := asset.NewLockKey(asset.Pipeline{Name: "daily", Lock: lock})
		require.NoError(t, err)
		return key
	}

	t.Run("a pipeline without a lock, and a shared one, is locked by workspace and pipeline", func(t *testing.T) {
		t.Parallel()
		for _, lock := range []*asset.Lock{nil, {}, {Shared: true}} {
			name, err := compile(t, lock).Of("prod", json.RawMessage(`{"region": "eu"}`))
			require.NoError(t, err)
			require.Equal(t, "prod/daily", name)
		}
	})

	for expression, want := range map[string]string{
		`parameters.region`:                             "eu",
		`workspace + "/" + pipeline`:                    "prod/daily",
		`"day " + string(parameters.n)`:                 "day 12",
		`"ratio " + string(parameters.ratio)`:           "ratio 0.5",
		`parameters.deep.list[1]`:                       "two",
		`has(parameters.zone) ? parameters.zone : "no"`: "no",
	} {
		t.Run("the key "+expression, func(t *testing.T) {
			t.Parallel()
			name, err := compile(t, &asset.Lock{Key: expression}).Of("prod",
				json.RawMessage(`{"region": "eu", "n": 12, "ratio": 0.5, "deep": {"list": ["one", "two"]}}`))
			require.NoError(t, err)
			require.Equal(t, want, name)
		})
	}

	long := strings.Repeat("x", 201)
	for name, c := range map[string]struct{ expression, parameters, message string }{
		"a parameter that was not given": {`parameters.region`, `{}`, "no such key: region"},
		"no parameters at all":           {`parameters.region`, ``, "no such key: region"},
		"a number":                       {`parameters.n`, `{"n": 1}`, "returns int, not text"},
		"nothing":                        {`parameters.region`, `{"region": ""}`, "returns an empty text"},
		"too much":                       {`parameters.region`, `{"region": "` + long + `"}`, "returns 201 bytes, the limit is 200"},
		"a zero character":               {`parameters.region`, `{"region": "a\u0000"}`, "cannot be stored"},
	} {
		t.Run(name+" is refused, with what helps", func(t *testing.T) {
			t.Parallel()
			_, err := compile(t, &asset.Lock{Key: c.expression}).Of("prod", json.RawMessage(c.parameters))
			f, ok := fault.As(err)
			require.True(t, ok, err)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.Equal(t, "parameters", f.Violation.Field)
			require.Contains(t, f.Message, c.message)
			require.NotEmpty(t, f.Violation.Remedy)
		})
	}

	t.Run("an expression that would work for long is stopped", func(t *testing.T) {
		t.Parallel()
		many, err := json.Marshal(map[string]any{"list": make([]int, 2000)})
		require.NoError(t, err)
		_, err = compile(t, &asset.Lock{Key: `parameters.list.all(a, parameters.list.all(b, b == 0)) ? "yes" : "no"`}).Of("prod", many)
		require.ErrorContains(t, err, "cost limit")
	})

	t.Run("the same parameters always give the same key", func(t *testing.T) {
		t.Parallel()
		key := compile(t, &asset.Lock{Key: `workspace + "/" + parameters.a + "/" + string(parameters.b)`})
		rapid.Check(t, func(t *rapid.T) {
			parameters, err := json.Marshal(map[string]any{
				"a": rapid.StringMatching(`[a-z]{0,20}`).Draw(t, "a"), "b": rapid.IntRange(-1<<53, 1<<53).Draw(t, "b"),
			})
			require.NoError(t, err)
			first, err := key.Of("prod", parameters)
			require.NoError(t, err)
			again, err := key.Of("prod", parameters)
			require.NoError(t, err)
			require.Equal(t, first, again)
			other, err := key.Of("dev", parameters)
			require.NoError(t, err)
			require.NotEqual(t, first, other)
		})
	})
}

func TestOverlapIsNormalised(t *testing.T) {
	t.Parallel()
	digest := func(t *testing.T, pipeline string) string {
		t.Helper()
		m, err := asset.Parse([]byte("version: 1\nassets: [{key: a/b, go: {}}]\npipelines: ["+pipeline+"]"), "servo.yaml")
		require.NoError(t, err)
		d, err := m.Digest()
		require.NoError(t, err)
		return d
	}
	plain := digest(t, "{name: p}")
	require.Equal(t, plain, digest(t, "{name: p, overlap: lock}"), "what means the same has the same digest")
	require.Equal(t, plain, digest(t, "{name: p, lock: {shared: false}}"))
	require.NotEqual(t, plain, digest(t, "{name: p, overlap: allow}"))
	require.NotEqual(t, plain, digest(t, "{name: p, lock: {key: workspace}}"))
}
