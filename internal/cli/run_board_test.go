package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/asset"
)

// story sends events to a board, one per second.
type story struct {
	board    *board
	now      time.Time
	versions map[string]int32
}

func newStory() *story {
	return &story{board: newBoard(), now: time.Unix(1_000_000, 0).UTC(), versions: map[string]int32{}}
}

func (s *story) event(t testing.TB, task, kind, data string) *servov1.Event {
	t.Helper()
	s.now = s.now.Add(time.Second)
	s.versions[task]++
	e := &servov1.Event{Task: task, Type: kind, Version: s.versions[task], RecordedAt: timestamppb.New(s.now), Data: &structpb.Struct{}}
	if data != "" {
		require.NoError(t, protojson.Unmarshal([]byte(data), e.GetData()))
	}
	return e
}

func (s *story) send(t testing.TB, task, kind, data string) string {
	t.Helper()
	return s.board.apply(s.event(t, task, kind, data))
}

const twoTasks = `{"pipeline": "daily", "started": true, "tasks": [{"id": "1", "ix": 0, "asset": "a/one"}, {"id": "2", "ix": 1, "asset": "a/two", "part": "eu", "up": [0]}]}`

func TestBoardShowsBreaches(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.send(t, "", "run.created", twoTasks)
	require.Equal(t, "run is late: it had not begun within 30m00s", s.send(t, "", "run.breached", `{"sla": "start_delay", "limit": 1800}`))
	require.Equal(t, "run took longer than 1m00s", s.send(t, "", "run.breached", `{"sla": "execution", "limit": 60}`))
}

func TestBoardShowsEvents(t *testing.T) {
	t.Parallel()
	s := newStory()
	for _, step := range []struct{ task, kind, data, want string }{
		{"", "run.created", twoTasks, "run RUNNING daily, 2 tasks"},
		{"1", "task.queued", "", "a/one QUEUED"},
		{"1", "task.claimed", `{"attempt": 1, "worker": "host-1"}`, "a/one DISPATCHED attempt 1 on host-1"},
		{"1", "task.returned", `{"reason": "LEASE_EXPIRED"}`, "a/one given back: LEASE_EXPIRED"},
		{"1", "task.claimed", `{"attempt": 2, "worker": "host-2"}`, "a/one DISPATCHED attempt 2 on host-2"},
		{"1", "task.started", "", "a/one RUNNING attempt 2 on host-2"},
		{"1", "task.fanned_out", `{"ordinal": 0, "tasks": ["3"]}`, "a/one has added 1 task"},
		{"", "run.tasks_added", `{"by": "1", "tasks": [{"id": "3", "asset": "a/part", "part": "x"}]}`, "run has 1 more task"},
		{"1", "task.retrying", `{"error": {"code": "NETWORK_ERROR", "message": "reset\u001b[2J"}, "due": "1970-01-12T13:46:52.5Z"}`, "a/one RETRY_WAIT NETWORK_ERROR: reset[2J, again in 3.5s"},
		{"1", "task.readied", "", "a/one READY"},
		{"1", "task.claimed", `{"attempt": 3, "worker": "host-1", "started": true}`, "a/one RUNNING attempt 3 on host-1"},
		{"1", "task.succeeded", `{"outcome": "PARTIAL_SUCCESS"}`, "a/one SUCCEEDED (PARTIAL_SUCCESS) in 1.0s"},
		{"3", "task.claimed", `{"attempt": 1, "worker": "host-1", "started": true}`, "a/part[x] RUNNING attempt 1 on host-1"},
		{"3", "task.failed", `{"error": {"code": "USER_CODE_EXCEPTION"}}`, "a/part[x] FAILED USER_CODE_EXCEPTION"},
		{"2", "task.skipped", `{"upstream": "3"}`, "a/two[eu] SKIPPED because a/part[x] did not succeed"},
		{"2", "task.renamed", "", "a/two[eu] renamed"},
		{"", "run.cancel_requested", `{"reason": "enough", "timed_out": true}`, "run CANCELLING out of time: enough"},
		{"9", "task.cancel_requested", "", "9 is asked to stop"},
		{"9", "task.cancelled", "", "9 CANCELLED"},
		{"", "run.started", "", "run RUNNING"},
		{"", "run.archived", "", "run archived"},
		{"", "run.ended", `{"state": "FAILED"}`, "run FAILED in 21.0s"},
	} {
		require.Equal(t, step.want, s.send(t, step.task, step.kind, step.data))
	}
	require.Equal(t, "4 tasks: 1 succeeded, 1 failed, 1 skipped, 1 cancelled", s.board.summary(0))
}

func TestBoardByVersions(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.send(t, "", "run.created", twoTasks)
	claimed := s.event(t, "1", "task.claimed", `{"attempt": 1, "worker": "w", "started": true}`)
	ended := s.event(t, "1", "task.succeeded", `{"outcome": "SUCCESS"}`)
	s.board.apply(ended)
	s.board.apply(claimed)
	require.Equal(t, servov1.Task_SUCCEEDED, s.board.byID["1"].state, "an older event does not undo a newer one")
}

func TestPicture(t *testing.T) {
	t.Parallel()
	plain := palette{terminal: true}

	t.Run("it shows state, progress and time of each task", func(t *testing.T) {
		t.Parallel()
		s := newStory()
		require.Empty(t, s.board.picture(plain, s.now, 80, 24, ""))
		s.send(t, "", "run.created", twoTasks)
		s.send(t, "1", "task.claimed", `{"attempt": 2, "worker": "host-1", "started": true}`)
		s.board.byID["1"].progress = &servov1.Progress{
			Fraction: 0.5, Phase: "LOAD", Stage: "page 3", RecordsExtracted: 12_000, RecordsLoaded: 950, Bytes: 4_200_000,
			Eta: timestamppb.New(s.now.Add(62500 * time.Millisecond)), EtaEstimated: true,
		}
		require.Equal(t, []string{
			"● RUNNING  daily  3.5s",
			"  a/one      ● RUNNING     ██████████░░░░░░░░░░  50%  2.5s  LOAD page 3  12k extracted, 950 loaded, 4.2 MB  about 1m00s left  attempt 2  on host-1",
			"  a/two[eu]  ○ PENDING",
			"  2 tasks: 1 pending, 1 running",
			"  lost the server",
		}, s.board.picture(plain, s.now.Add(2500*time.Millisecond), 160, 24, "lost the server"))
		s.board.byID["1"].progress = nil
		require.Contains(t, s.board.picture(plain, s.now.Add(2500*time.Millisecond), 120, 24, ""), "  a/one      ● RUNNING     2.5s  attempt 2  on host-1", "it need not report progress")
		s.send(t, "1", "task.failed", `{"error": {"code": "OUT_OF_MEMORY", "message": "killed"}}`)
		require.Contains(t, s.board.picture(plain, s.now, 120, 24, ""), "  a/one      ✗ FAILED      OUT_OF_MEMORY: killed")
	})

	t.Run("it never is larger than the terminal, and shows what matters", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			s := newStory()
			n := rapid.IntRange(1, 60).Draw(t, "tasks")
			var specs []string
			for i := range n {
				specs = append(specs, fmt.Sprintf(`{"id": "%d", "asset": "ns/%s"}`, i, strings.Repeat("x", rapid.IntRange(1, 90).Draw(t, "name"))))
			}
			created := &servov1.Event{Type: "run.created", RecordedAt: timestamppb.New(s.now), Data: &structpb.Struct{}}
			require.NoError(t, protojson.Unmarshal([]byte(`{"pipeline": "p", "tasks": [`+strings.Join(specs, ",")+`]}`), created.GetData()))
			s.board.apply(created)
			busy := fmt.Sprint(rapid.IntRange(0, n-1).Draw(t, "busy"))
			s.board.enter(s.board.byID[busy], servov1.Task_RUNNING)
			width, height := rapid.IntRange(20, 200).Draw(t, "width"), rapid.IntRange(5, 50).Draw(t, "height")
			picture := s.board.picture(palette{terminal: true, colour: true}, s.now, width, height, "a note")
			require.LessOrEqual(t, len(picture), height)
			for _, line := range picture {
				require.LessOrEqual(t, lipgloss.Width(line), width)
			}
			require.Contains(t, strings.Join(picture[1:len(picture)-2], "\n"), "●", "the running task is among those shown")
		})
	})
}

func TestTyped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, text string
		want       any
		wrong      string
	}{
		{"string", "12", "12", ""},
		{"", "12", "12", ""},
		{"integer", "-12", -12.0, ""},
		{"integer", "1.5", nil, `"1.5" is not an integer`},
		{"integer", "9007199254740993", nil, `"9007199254740993" cannot be kept exactly: numbers have the range and precision of an IEEE double`},
		{"number", "1.5e3", 1500.0, ""},
		{"number", "NaN", nil, `"NaN" is not a number`},
		{"number", "", nil, `"" is not a number`},
		{"boolean", "false", false, ""},
		{"boolean", "no", nil, `"no" is neither true nor false`},
		{"object", `{"a": 1}`, map[string]any{"a": 1.0}, ""},
		{"object", "null", nil, `"null" is not a JSON object`},
		{"array", "[1]", []any{1.0}, ""},
		{"array", "1,2", nil, `"1,2" is not a JSON array`},
	} {
		value, wrong := typed(asset.ParameterType(c.kind), c.text)
		require.Equal(t, c.want, value, c)
		require.Equal(t, c.wrong, wrong, c)
	}
}
