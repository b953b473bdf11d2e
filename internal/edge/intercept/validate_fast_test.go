package intercept_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/intercept"
)

// drawText draws a text at a limit, or next to it.
func drawText(t *rapid.T, name string, limits ...int) string {
	n := rapid.SampledFrom(append(limits, 0, 1)).Draw(t, name) + rapid.IntRange(-1, 1).Draw(t, name+" off")
	return strings.Repeat(rapid.SampledFrom([]string{"a", "é"}).Draw(t, name+" of"), max(0, n))
}

func drawProgress(t *rapid.T) *servov1.Progress {
	fraction := rapid.SampledFrom([]float32{0, 1, 0.5, -0.1, 1.1, float32(math.NaN()), float32(math.Inf(1))})
	count := rapid.SampledFrom([]int64{0, 1, -1, math.MaxInt64})
	return &servov1.Progress{
		Phase: drawText(t, "phase", 100), Stage: drawText(t, "stage", 100, 50), Fraction: fraction.Draw(t, "fraction"),
		RecordsExtracted: count.Draw(t, "extracted"), RecordsTransformed: count.Draw(t, "transformed"),
		RecordsLoaded: count.Draw(t, "loaded"), Bytes: count.Draw(t, "bytes"),
	}
}

func drawItem(t *rapid.T) *servov1.ReportItem {
	item := &servov1.ReportItem{Lease: drawText(t, "lease", 200, 82)}
	long := func(name string) string { return drawText(t, name, 65536, 32768) }
	switch rapid.IntRange(0, 8).Draw(t, "action") {
	case 1:
		item.Action = &servov1.ReportItem_Start{Start: &servov1.Start{}}
	case 2:
		item.Action = &servov1.ReportItem_Advance{Advance: &servov1.Advance{Expected: long("expected"), Next: long("next")}}
	case 3:
		item.Action = &servov1.ReportItem_Yield{Yield: &servov1.Yield{Cursor: proto.String(long("cursor"))}}
	case 4:
		item.Action = &servov1.ReportItem_Complete{Complete: &servov1.Complete{Status: servov1.Complete_Status(rapid.Int32Range(-1, 4).Draw(t, "status"))}}
	case 5:
		fail := &servov1.Fail{}
		if rapid.Bool().Draw(t, "error") {
			fail.Error = &servov1.Failure{
				Code: drawText(t, "code", 100, 50), Message: long("message"), SuggestedAction: long("suggested"), Class: drawText(t, "class", 100, 50),
			}
		}
		item.Action = &servov1.ReportItem_Fail{Fail: fail}
	case 6:
		fan := &servov1.FanOut{Ordinal: rapid.Int32Range(-1, 1).Draw(t, "ordinal")}
		for range rapid.IntRange(0, 2).Draw(t, "tasks") {
			fan.Tasks = append(fan.Tasks, &servov1.FanOutTask{Asset: drawText(t, "asset", 201, 100, 3, 2), Partition: drawText(t, "partition", 1000, 500)})
		}
		item.Action = &servov1.ReportItem_FanOut{FanOut: fan}
	case 7:
		item.Action = &servov1.ReportItem_Progress{Progress: drawProgress(t)}
	case 8:
		item.Action = &servov1.ReportItem_Log{Log: &servov1.LogChunk{Seq: rapid.Int64Range(-1, 2).Draw(t, "seq"), Text: long("text")}}
	}
	return item
}

func TestSurelyValid(t *testing.T) {
	t.Parallel()

	t.Run("a surely valid request violates no rule", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			report := &servov1.ReportRequest{WorkerId: drawText(t, "worker", 200, 100)}
			for range rapid.IntRange(0, 2).Draw(t, "items") {
				report.Items = append(report.Items, drawItem(t))
			}
			beat := &servov1.HeartbeatRequest{WorkerId: report.GetWorkerId()}
			for _, item := range report.GetItems() {
				beat.Leases = append(beat.Leases, &servov1.HeartbeatItem{Lease: item.GetLease(), Progress: drawProgress(t)})
			}
			for _, req := range []proto.Message{report, beat} {
				if intercept.SurelyValid(req) {
					require.NoError(t, intercept.Rules(req))
				}
			}
		})
	})

	t.Run("usual requests of workers are surely valid", func(t *testing.T) {
		t.Parallel()
		require.True(t, intercept.SurelyValid(report(t, 10)))
		require.True(t, intercept.SurelyValid(&servov1.HeartbeatRequest{WorkerId: "w", Leases: []*servov1.HeartbeatItem{{Lease: "x"}, {Lease: "x", Progress: &servov1.Progress{Fraction: 1}}}}))
		require.False(t, intercept.SurelyValid(&servov1.GetRunRequest{}), "the rules decide")
	})

	t.Run("the rules refuse too many items", func(t *testing.T) {
		t.Parallel()
		req := report(t, 1)
		for len(req.GetItems()) <= 10_000 {
			req.Items = append(req.Items, req.GetItems()[0])
		}
		require.False(t, intercept.SurelyValid(req))
		require.Error(t, intercept.Check(req))
	})
}

// report is a start and a completion with a result for each of some leases.
func report(t testing.TB, leases int) *servov1.ReportRequest {
	t.Helper()
	req := &servov1.ReportRequest{WorkerId: "w"}
	result, err := structpb.NewValue(map[string]any{"rows": 17, "path": "gs://bucket/object"})
	require.NoError(t, err)
	lease := strings.Repeat("x", 82)
	for range leases {
		req.Items = append(req.Items,
			&servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_Start{Start: &servov1.Start{}}},
			&servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_Complete{Complete: &servov1.Complete{Result: result}}})
	}
	return req
}

// BenchmarkCheck measures a report of 500 items: by the rules alone, and as calls are checked.
func BenchmarkCheck(b *testing.B) {
	req := report(b, 250)
	for name, check := range map[string]func() error{
		"rules": func() error { return intercept.Rules(req) },
		"fast":  func() error { return intercept.Check(req) },
	} {
		b.Run(name, func(b *testing.B) {
			require.NoError(b, check())
			b.ReportAllocs()
			for b.Loop() {
				if err := check(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
