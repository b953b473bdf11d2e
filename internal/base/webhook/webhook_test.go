package webhook_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/webhook"
)

func TestSign(t *testing.T) {
	t.Parallel()
	// The example of the convention's own documentation.
	secret, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	got := webhook.Sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", got)
	require.Equal(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", webhook.SecretText(secret))
	require.NotEqual(t, webhook.NewSecret(), webhook.NewSecret())
}

func TestWait(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := time.Duration(rapid.IntRange(1, 100).Draw(t, "first")) * time.Second
		longest := time.Duration(rapid.IntRange(1, 1000).Draw(t, "longest")) * time.Second
		tries := rapid.IntRange(0, 1_000_000).Draw(t, "tries")
		wait, next := webhook.Wait(tries, first, longest), webhook.Wait(tries+1, first, longest)
		require.LessOrEqual(t, wait, next, "later and later")
		require.LessOrEqual(t, next, longest)
		require.GreaterOrEqual(t, wait, min(first, longest))
	})
	require.Equal(t, 40*time.Second, webhook.Wait(3, 5*time.Second, time.Hour))
}

func TestValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, fault.CheckName("on-call_2.x", "on-call"))
	require.NoError(t, webhook.ValidateURL("https://hooks.example.com/servo?team=data"))
	for _, err := range []error{
		fault.CheckName("", "on-call"), fault.CheckName("-x", "on-call"), fault.CheckName(strings.Repeat("x", 101), "on-call"),
		webhook.ValidateURL("ftp://example.com"), webhook.ValidateURL("https://"), webhook.ValidateURL("https://user:secret@example.com/"),
		webhook.ValidateURL("https://example.com/" + strings.Repeat("x", 2000)), webhook.ValidateURL("https://exa mple.com\x00"),
	} {
		f, ok := fault.As(err)
		require.True(t, ok)
		require.NotEmpty(t, f.Violation.Remedy)
	}
}

func TestPost(t *testing.T) {
	t.Parallel()
	status := http.StatusNoContent
	var signature, body string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		signature, body = r.Header.Get("Webhook-Signature"), string(b)
		w.WriteHeader(status)
	}))
	t.Cleanup(receiver.Close)
	s := webhook.NewSender("test", netguard.NewGuard(netguard.Policy{Local: true}))
	t.Cleanup(s.Close)
	at := time.Unix(1614265330, 0)
	m := webhook.Message{URL: receiver.URL, ID: "x", Secret: webhook.NewSecret(), Body: []byte("[]")}
	require.Empty(t, s.Post(t.Context(), m, at))
	require.Equal(t, webhook.Sign(m.Secret, "x", at, m.Body), signature)
	require.Equal(t, "[]", body)

	status = http.StatusTeapot
	require.Contains(t, s.Post(t.Context(), m, at), "418")
	strict := webhook.NewSender("test", nil)
	t.Cleanup(strict.Close)
	require.Contains(t, strict.Post(t.Context(), m, at), "is a loopback address")
	m.URL = "https://exa mple.com"
	require.NotEmpty(t, s.Post(t.Context(), m, at))
}
