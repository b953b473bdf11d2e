package plan

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/domain/asset"
)

func TestFingerprintIsThatOfTheCanonicalForm(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(rapid.StringMatching(`[a-z0-9/_.-]{1,8}`), rapid.String())
		small := rapid.IntRange(0, 20)
		p := Plan{
			Pipeline:    word.Draw(t, "pipeline"),
			Parameters:  json.RawMessage(rapid.SampledFrom([]string{`{}`, `{"a":"é","b":[1,null]}`}).Draw(t, "parameters")),
			Tasks:       []Task{},
			Edges:       [][2]int{},
			Stages:      append([]int{}, rapid.SliceOfN(small, 0, 3).Draw(t, "stages")...),
			Fingerprint: "not part of it",
		}
		for range rapid.IntRange(0, 3).Draw(t, "tasks") {
			p.Tasks = append(p.Tasks, Task{
				Index: small.Draw(t, "index"), Key: word.Draw(t, "key"), Partition: rapid.SampledFrom([]string{"", `{"day":"1"}`, "x"}).Draw(t, "partition"),
				Pool: word.Draw(t, "pool"), Stage: small.Draw(t, "stage"), Timeout: asset.Duration(time.Duration(small.Draw(t, "timeout")) * 700 * time.Millisecond),
			})
			p.Edges = append(p.Edges, [2]int{small.Draw(t, "from"), small.Draw(t, "to")})
		}
		got, err := p.fingerprint()
		require.NoError(t, err)
		bare := p
		bare.Fingerprint = ""
		want, err := canon.Digest(bare)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}
