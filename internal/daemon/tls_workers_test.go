package daemon_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/certs"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

func TestWorkersShowCertificates(t *testing.T) {
	t.Parallel()
	ca, workers := certs.New(t), certs.New(t)
	server := servertest.StartEncrypted(t, ca.Issue(t, "server", time.Hour), workers.File)
	with := func(pairs ...certs.Pair) *tls.Config {
		config := &tls.Config{RootCAs: ca.Pool, MinVersion: tls.VersionTLS12}
		for _, p := range pairs {
			pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
			require.NoError(t, err)
			config.Certificates = append(config.Certificates, pair)
		}
		return config
	}
	claim := func(config *tls.Config) error {
		conn, err := grpc.NewClient(server.GRPCAddr(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }() // its call is over
		_, err = servov1.NewWorkerServiceClient(conn).Claim(t.Context(), &servov1.ClaimRequest{WorkerId: "w", ClaimId: uuid.NewString(), Pools: []string{"default"}, Max: 1})
		return err
	}
	post := func(config *tls.Config) int {
		body := `{"worker_id": "w", "claim_id": "` + uuid.NewString() + `", "pools": ["default"], "max": 1}`
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+server.HTTPAddr()+"/v1/workers%3Aclaim", strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		response, err := restClient(t, config).Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}

	good := workers.Issue(t, "worker", time.Hour)
	require.NoError(t, claim(with(good)))
	require.NotEqual(t, http.StatusUnauthorized, post(with(good)))
	require.Equal(t, codes.Unauthenticated, status.Code(claim(with())))
	require.Equal(t, http.StatusUnauthorized, post(with()))
	require.NoError(t, getStatus(t, server.GRPCAddr(), with()), "others need none")

	// One of another authority, and one that has expired, do not even get a connection.
	for _, bad := range []certs.Pair{ca.Issue(t, "unknown", time.Hour), workers.Issue(t, "late", -time.Minute)} {
		config := with(bad)
		pair := config.Certificates[0]
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		require.Equal(t, codes.Unavailable, status.Code(claim(config)))
	}

	// The paths that are held to it are those of the contract.
	calls := servov1.File_servo_v1_workers_proto.Services().ByName("WorkerService").Methods()
	for i := range calls.Len() {
		rule, _ := proto.GetExtension(calls.Get(i).Options(), annotations.E_Http).(*annotations.HttpRule)
		if calls.Get(i).Name() == "ListWorkers" { // which is for people
			continue
		}
		require.Regexp(t, "^/v1/(workers:|tasks/)", rule.GetPost())
		require.False(t, calls.Get(i).IsStreamingServer() || calls.Get(i).IsStreamingClient())
	}
}
