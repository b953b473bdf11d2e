package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

const acceptStream = "Accept: text/event-stream"

// sent is one event of a stream that has ended.
type sent struct{ id, kind, data string }

func read(t *testing.T, body []byte) (events []sent) {
	t.Helper()
	for block := range strings.SplitSeq(strings.TrimSuffix(string(body), "\n\n"), "\n\n") {
		var one sent
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "id":
				one.id = value
			case "event":
				one.kind = value
			case "data":
				one.data = value
			}
		}
		if one.kind != "" {
			events = append(events, one)
		}
	}
	return events
}

func TestRunEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := "/v1/tenants/acme/runs/" + w.run
	require.Equal(t, http.StatusOK, call(t, w.url, "POST", path+":cancel", `{"reason":"enough"}`).StatusCode)
	whole := call(t, w.url, "GET", path+"/events", "", acceptStream)
	require.Equal(t, http.StatusOK, whole.StatusCode, "%s", whole.body)
	all := read(t, whole.body)

	t.Run("a stream has every event and ends with the run", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "text/event-stream", whole.Header.Get("Content-Type"))
		require.Greater(t, len(all), 3)
		last := all[len(all)-1]
		require.Equal(t, "end", last.kind)
		require.Empty(t, last.id)
		require.Contains(t, last.data, `"state":"CANCELLED"`)
		page, _ := call(t, w.url, "GET", path+"/events?page_size=100", "").json(t)["events"].([]any)
		require.Len(t, page, len(all)-1)
		for i, e := range page {
			require.Equal(t, e.(map[string]any)["id"], all[i].id)
			require.Equal(t, e.(map[string]any)["type"], all[i].kind)
		}
	})

	t.Run("it continues after any event, without loss or repeat", func(t *testing.T) {
		t.Parallel()
		for i, e := range all[:len(all)-1] {
			byHeader := call(t, w.url, "GET", path+"/events?after="+all[0].id, "", acceptStream, "Last-Event-ID: "+e.id)
			require.Equal(t, all[i+1:], read(t, byHeader.body), "the header is stronger")
			byQuery := call(t, w.url, "GET", path+"/events?after="+e.id, "", acceptStream)
			require.Equal(t, all[i+1:], read(t, byQuery.body))
		}
	})

	t.Run("what is wrong from the start is an ordinary problem", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			path   string
			header string
			status int
			field  string
		}{
			{fmt.Sprintf("/v1/tenants/acme/runs/%s/events", uuid.Nil), "X: y", 404, ""},
			{fmt.Sprintf("/v1/tenants/missing/runs/%s/events", w.run), "X: y", 404, "tenant"},
			{"/v1/tenants/acme/runs/seven/events", "X: y", 400, "run"},
			{path + "/events", "Last-Event-ID: nonsense", 400, "after"},
			{path + "/events", "Last-Event-ID: \xff", 400, "Last-Event-ID"},
			{path + "/events?page_size=3", "X: y", 400, "page_size"},
			{path + "/events?after=a&after=b", "X: y", 400, "after"},
			{path + "/events?after=%zz", "X: y", 400, ""},
		} {
			res := call(t, w.url, "GET", c.path, "", acceptStream, c.header)
			require.Equal(t, c.status, res.StatusCode, "%s: %s", c.path, res.body)
			requireProblem(t, res)
			if c.field != "" {
				require.Equal(t, c.field, res.json(t)["field"])
			}
		}
		res := call(t, w.url, "GET", path+"/events?after="+all[0].id, "")
		require.Equal(t, http.StatusBadRequest, res.StatusCode, "the next page is requested by page_token")
	})
}
