package output_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/quality"
)

var attempt = output.Attempt{Tenant: "acme", Workspace: "prod", Asset: "gold/revenue", Run: "r1", Task: "t1", Attempt: 2, Token: 7}

func marker(t *testing.T) output.Marker {
	t.Helper()
	digest := strings.Repeat("ab", 32)
	return output.NewMarker(attempt, quality.Parquet, []output.File{{Name: "b.parquet", Bytes: 2, SHA256: digest}, {Name: "a.parquet", Bytes: 3, SHA256: digest}}, 10, digest)
}

func TestMarker(t *testing.T) {
	t.Parallel()

	t.Run("a marker is read back for its own attempt", func(t *testing.T) {
		t.Parallel()
		m := marker(t)
		require.Equal(t, "acme/prod/assets/gold/revenue/materializations/t1-7/", m.Prefix())
		require.Equal(t, int64(5), m.Bytes)
		require.Equal(t, "a.parquet", m.Files[0].Name)
		data, err := json.Marshal(m)
		require.NoError(t, err)
		read, err := output.ParseMarker(data, attempt)
		require.NoError(t, err)
		require.Equal(t, m, read)
	})

	t.Run("every other marker is refused", func(t *testing.T) {
		t.Parallel()
		for name, change := range map[string]func(*output.Marker){
			"another attempt":   func(m *output.Marker) { m.Token = 8 },
			"another task":      func(m *output.Marker) { m.Task = "t2" },
			"another tenant":    func(m *output.Marker) { m.Tenant = "bravo" },
			"another version":   func(m *output.Marker) { m.Version = 2 },
			"an unknown format": func(m *output.Marker) { m.Format = "orc" },
			"no files":          func(m *output.Marker) { m.Files = nil },
			"a path out of it":  func(m *output.Marker) { m.Files[0].Name = "../a" },
			"a reserved name":   func(m *output.Marker) { m.Files[0].Name = "_commit.json" },
			"a file twice":      func(m *output.Marker) { m.Files[1] = m.Files[0] },
			"no digest":         func(m *output.Marker) { m.Files[0].SHA256 = "" },
			"a wrong total":     func(m *output.Marker) { m.Bytes++ },
			"negative rows":     func(m *output.Marker) { m.Rows = -1 },
			"another content":   func(m *output.Marker) { m.Digest = strings.Repeat("00", 32) },
			"no metadata":       func(m *output.Marker) { m.Metadata = "" },
			"a negative size":   func(m *output.Marker) { m.Files[0].Bytes, m.Bytes = -1, 1 },
			"too many files":    func(m *output.Marker) { m.Files = make([]output.File, output.MaxFiles+1) },
		} {
			m := marker(t)
			change(&m)
			data, err := json.Marshal(m)
			require.NoError(t, err)
			_, err = output.ParseMarker(data, attempt)
			require.True(t, fault.Is(err, fault.InvalidArgument), "%s: %v", name, err)
		}
		_, err := output.ParseMarker([]byte("{"), attempt)
		require.True(t, fault.Is(err, fault.InvalidArgument))
	})
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "data.parquet", "date=2026-01-01/part-0.csv"} {
		require.NoError(t, output.CheckName(good), good)
	}
	for _, bad := range []string{"", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a b", "_commit.json", "a\x00", ".hidden", "x.attrs", strings.Repeat("a", 201)} {
		require.True(t, fault.Is(output.CheckName(bad), fault.InvalidArgument), bad)
	}
}

// TestPointer runs any sequence of commands against one partition.
func TestPointer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var (
			p        output.Pointer
			versions = map[int64]output.Version{}
			tokens   []int64
			moved    bool // a command of an operator has moved the pointer
			highest  int64
		)
		readable := func() {
			if p.Current == 0 {
				return
			}
			require.Equal(t, output.Promoted, versions[p.Current].State, "readers see promoted versions only")
		}
		pick := func() output.Version {
			return versions[rapid.SampledFrom(tokens).Draw(t, "version")]
		}
		for range rapid.IntRange(1, 30).Draw(t, "commands") {
			before := p
			force := rapid.Bool().Draw(t, "force")
			expected := rapid.SampledFrom([]int64{p.Current, p.Current + 1}).Draw(t, "expected")
			switch command := rapid.IntRange(0, 5).Draw(t, "command"); {
			case command <= 1 || len(tokens) == 0: // attempts complete in any order of their tokens
				token := rapid.Int64Range(1, 40).Draw(t, "token")
				if _, used := versions[token]; used {
					continue
				}
				gate := rapid.SampledFrom([]quality.Gate{quality.Allow, quality.Warn, quality.Quarantine}).Draw(t, "gate")
				next, v, err := p.Commit(token, gate)
				require.NoError(t, err)
				p, versions[token], tokens = next, v, append(tokens, token)
				require.GreaterOrEqual(t, p.Highest, before.Highest)
				if v.State == output.Promoted {
					highest = max(highest, token)
					require.Greater(t, token, before.Highest, "a completion never moves the pointer backwards")
				} else {
					require.Equal(t, before, p)
				}
			case command == 2:
				v := pick()
				next, approved, err := p.Approve(v, expected, force)
				if err != nil {
					require.Equal(t, before, next)
					require.Equal(t, v, approved)
					continue
				}
				p, versions[v.Token], highest = next, approved, max(highest, v.Token)
				if p.Current < before.Current {
					require.True(t, force, "only force moves the pointer backwards")
				}
				if !force {
					require.Equal(t, expected, before.Current)
				}
				moved = true
			case command == 3:
				v := pick()
				if rejected, err := v.Reject(); err == nil {
					versions[v.Token] = rejected
				}
			case command == 4:
				v := pick()
				next, err := p.Rollback(v, expected, force)
				if err != nil {
					require.Equal(t, before, next)
					continue
				}
				p, moved = next, true
				require.Equal(t, v.Token, p.Current)
			default:
				v := pick()
				next, wiped, err := p.Wipe(v, force)
				if err == nil {
					p, versions[v.Token] = next, wiped
					moved = moved || before.Current != next.Current
				}
			}
			readable()
			require.Equal(t, highest, p.Highest)
			if !moved {
				require.Equal(t, highest, p.Current, "without an operator, the newest promoted version is current")
			}
		}
	})
}

func TestCommitRefusesBlocked(t *testing.T) {
	t.Parallel()
	for _, gate := range []quality.Gate{quality.Block, ""} {
		p, _, err := output.Pointer{}.Commit(1, gate)
		require.Error(t, err)
		require.Zero(t, p)
	}
}

func TestDependents(t *testing.T) {
	t.Parallel()
	good, failed := output.Upstream{LastGood: true}, output.Upstream{Failed: true}
	last, none := output.Upstream{Quarantined: true, LastGood: true}, output.Upstream{Quarantined: true}
	for _, c := range []struct {
		upstreams []output.Upstream
		want      output.Dependents
	}{
		{nil, output.Run},
		{[]output.Upstream{good}, output.Run},
		{[]output.Upstream{good, last}, output.Run},
		{[]output.Upstream{none, good}, output.SkipQuarantined},
		{[]output.Upstream{none, failed}, output.SkipFailed},
		{[]output.Upstream{failed, last}, output.SkipFailed},
	} {
		require.Equal(t, c.want, output.DependentsOf(c.upstreams), "%+v", c.upstreams)
	}
}
