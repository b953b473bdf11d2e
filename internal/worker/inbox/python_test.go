package inbox_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/push"
)

// TestPython pushes a task to the example's worker, and receives its reports at signed URLs.
func TestPython(t *testing.T) {
	t.Parallel()
	now := time.Now()
	key, err := push.NewKey(rand.Reader, now.Add(-time.Hour))
	require.NoError(t, err)
	bodies := make(chan string, 100)
	callbacks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		c, refusal := push.VerifyCallback(r.Method, r.URL, push.Keyring{key}, time.Now())
		if err != nil || refusal != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if c.Action == push.ActionStatus {
			bodies <- string(body)
		}
		_, _ = w.Write([]byte(`{"held":true}`))
	}))
	t.Cleanup(callbacks.Close)

	command := exec.CommandContext(t.Context(), "python3", "-B", "worker.py", "--port", "0")
	command.Dir = "../../../examples/push-python"
	command.Env = append(os.Environ(), "SERVO_PUSH_KEYS="+key.Worker("python").Text())
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	var port int
	_, err = fmt.Sscanf(line, "listening on port %d", &port)
	require.NoError(t, err)

	m := id.NewMinter(now)
	c := push.Callback{Tenant: id.New[id.Tenant](m), Run: id.New[id.Run](m), Task: id.New[id.Task](m), Attempt: 1, Token: 7}
	urls, err := push.SignCallbacks(callbacks.URL, c, key, now.Add(time.Hour))
	require.NoError(t, err)
	e := push.Envelope{Pool: "python", Run: c.Run, Task: c.Task, Attempt: c.Attempt, Asset: "text/words", Parameters: json.RawMessage(`{"text":"né né 1"}`), Callbacks: urls}
	raw, err := push.Sign(e, key, now, time.Minute, rand.Reader)
	require.NoError(t, err)
	post := func(body []byte) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/tasks", port), bytes.NewReader(body))
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, http.StatusForbidden, post(bytes.Replace(raw, []byte("né"), []byte("ne"), 1)))
	require.Equal(t, http.StatusAccepted, post(raw))
	require.Regexp(t, `^{"start": ?{"instance": ?"[-0-9a-f]{36}"}}$`, <-bodies)
	require.JSONEq(t, `{"complete":{"status":"SUCCESS","result":{"né":2,"1":1}}}`, <-bodies)
}
