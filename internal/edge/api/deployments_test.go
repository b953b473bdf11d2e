package api_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/asset"
)

func compressed(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// largeManifest has many assets with long descriptions, as JSON.
func largeManifest(t *testing.T) string {
	t.Helper()
	m := &asset.Manifest{Version: 1}
	for i := range 1900 {
		m.Assets = append(m.Assets, asset.Asset{
			Key: fmt.Sprintf("wide/a%05d", i), Description: strings.Repeat("words ", 500), Exec: &asset.Exec{Command: []string{"run"}},
		})
	}
	text, err := m.Canonical()
	require.NoError(t, err)
	require.Greater(t, len(text), 5<<20)
	return string(text)
}

func TestLargeManifest(t *testing.T) {
	t.Parallel()

	t.Run("a manifest larger than a message is sent and returned compressed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		text := largeManifest(t)
		answer, err := b.deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", ManifestGzip: compressed(t, text)})
		require.NoError(t, err)
		shown, err := b.deployments.GetDeployment(t.Context(), &servov1.GetDeploymentRequest{Tenant: "acme", Deployment: answer.GetDeployment().GetId()})
		require.NoError(t, err)
		require.Nil(t, shown.GetManifest())
		r, err := gzip.NewReader(bytes.NewReader(shown.GetManifestGzip()))
		require.NoError(t, err)
		back, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, text, string(back))
	})

	t.Run("a manifest that is missing, doubled, broken or too large is refused by its field", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		small := compressed(t, `{"version":1}`)
		for name, c := range map[string]struct {
			req   *servov1.DeployRequest
			code  codes.Code
			field string
		}{
			"none":      {&servov1.DeployRequest{}, codes.InvalidArgument, "manifest"},
			"both":      {&servov1.DeployRequest{Manifest: manifestOf(t, manifestText), ManifestGzip: small}, codes.InvalidArgument, "manifest_gzip"},
			"no gzip":   {&servov1.DeployRequest{ManifestGzip: []byte("plain")}, codes.InvalidArgument, "manifest_gzip"},
			"cut short": {&servov1.DeployRequest{ManifestGzip: small[:len(small)-9]}, codes.InvalidArgument, "manifest_gzip"},
			"too large": {&servov1.DeployRequest{ManifestGzip: compressed(t, strings.Repeat(" ", asset.MaxBytes+1))}, codes.ResourceExhausted, "manifest_gzip"},
			"invalid":   {&servov1.DeployRequest{ManifestGzip: small}, codes.InvalidArgument, "assets"},
		} {
			c.req.Tenant = "acme"
			_, err := b.deployments.Deploy(t.Context(), c.req)
			t.Log(name)
			requireRefused(t, err, c.code, c.field)
		}
	})
}
