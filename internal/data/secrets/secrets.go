package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/secret"
)

// The limits of a value and of a call.
const (
	maxValue = 64 << 10
	patience = 10 * time.Second
	maxFile  = 1 << 20
)

// Settings is the secrets file of a worker.
type Settings struct {
	Allow secret.Rules `yaml:"allow"`
	// Dir is the directory of the provider file.
	Dir   string         `yaml:"dir"`
	Vault *VaultSettings `yaml:"vault"`
}

// VaultSettings is how a worker reads Vault.
type VaultSettings struct {
	Address   string `yaml:"address"`    // such as https://vault.example.com:8200
	TokenFile string `yaml:"token_file"` // read at each use, so that an agent can renew it
	Namespace string `yaml:"namespace"`
}

// Store reads secrets.
type Store struct {
	settings Settings
	getenv   func(string) (string, bool)
	client   *http.Client
}

// Load reads a secrets file.
func Load(name string) (*Store, error) {
	data, err := os.ReadFile(name) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, err.Error(), fault.Field("secrets"), fault.Remedy("name a readable file"), fault.Cause(err))
	}
	if len(data) > maxFile {
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("has %d bytes, the limit is %d", len(data), maxFile), fault.Field("secrets"))
	}
	var s Settings
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&s); err != nil {
		return nil, fault.New(fault.InvalidArgument, name+": "+err.Error(), fault.Field("secrets"), fault.Remedy("write allow, dir and vault as in the guide Secrets"))
	}
	return New(s, os.LookupEnv), nil
}

// New returns a store.
func New(s Settings, getenv func(string) (string, bool)) *Store {
	return &Store{settings: s, getenv: getenv, client: &http.Client{
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token stays with Vault
	}}
}

// Read returns the value of a secret for a task of a tenant, if a rule permits it.
func (s *Store) Read(ctx context.Context, tenant string, pools []string, r secret.Ref) (string, error) {
	if !s.settings.Allow.Allows(tenant, pools, r) {
		return "", fault.New(fault.Forbidden, fmt.Sprintf("secret %s is not permitted for tenant %s on this worker", r, tenant), fault.Field("secret"),
			fault.Remedy("add it to allow in the worker's secrets file"))
	}
	value, err := s.read(ctx, r)
	if err != nil {
		return "", err
	}
	switch {
	case len(value) < secret.MinLength:
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("secret %s has %d bytes, the minimum is %d", r, len(value), secret.MinLength), fault.Field("secret"),
			fault.Remedy("use a longer value: a short one cannot be kept out of logs"))
	case len(value) > maxValue:
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("secret %s has more than %d bytes", r, maxValue), fault.Field("secret"))
	}
	return value, nil
}

func (s *Store) read(ctx context.Context, r secret.Ref) (string, error) {
	if r.Version != "" && r.Provider != secret.Vault {
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("secret %s: provider %s has no versions", r, r.Provider), fault.Field("secret"), fault.Remedy("remove the version"))
	}
	switch r.Provider {
	case secret.Env:
		value, set := s.getenv(r.Path)
		if !set {
			return "", missing(r, "the worker's environment has no such variable")
		}
		return value, nil
	case secret.File:
		return s.file(r)
	case secret.Vault:
		return s.vault(ctx, r)
	}
	return "", missing(r, "unknown provider")
}

func missing(r secret.Ref, why string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("secret %s: %s", r, why), fault.Field("secret"), fault.Remedy("create the secret, or correct the reference"))
}

// file reads a file below the directory; links cannot leave it. A final newline is not part of the value.
func (s *Store) file(r secret.Ref) (string, error) {
	if s.settings.Dir == "" {
		return "", missing(r, "the worker's secrets file sets no dir")
	}
	f, err := os.OpenInRoot(s.settings.Dir, r.Path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", missing(r, "the file does not exist")
		}
		return "", fault.New(fault.Forbidden, fmt.Sprintf("secret %s cannot be read", r), fault.Field("secret"), fault.Remedy("check the file and its permissions"))
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxValue+2))
	if err != nil {
		return "", fault.New(fault.Unavailable, fmt.Sprintf("secret %s cannot be read", r), fault.Field("secret"))
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
}

// vault reads a field of a key-value engine, version 2.
func (s *Store) vault(ctx context.Context, r secret.Ref) (string, error) {
	v := s.settings.Vault
	path, field, ok := strings.Cut(r.Path, "#")
	mount, rest, deep := strings.Cut(path, "/")
	if v == nil || !ok || !deep {
		return "", missing(r, "write vault:MOUNT/PATH#FIELD, and set vault in the worker's secrets file")
	}
	token, err := os.ReadFile(v.TokenFile)
	if err != nil {
		return "", fault.New(fault.Unavailable, fmt.Sprintf("secret %s: the token of Vault cannot be read", r), fault.Field("secret"), fault.Remedy("check token_file in the worker's secrets file"))
	}
	address := strings.TrimSuffix(v.Address, "/") + "/v1/" + mount + "/data/" + rest
	if r.Version != "" {
		address += "?version=" + url.QueryEscape(r.Version)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", missing(r, "the address of Vault is not a URL")
	}
	request.Header.Set("X-Vault-Token", strings.TrimSpace(string(token)))
	if v.Namespace != "" {
		request.Header.Set("X-Vault-Namespace", v.Namespace)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return "", fault.New(fault.Unavailable, fmt.Sprintf("secret %s: Vault does not respond", r), fault.Field("secret"), fault.Cause(err))
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return "", missing(r, "Vault has no such secret or version")
	case http.StatusForbidden:
		return "", fault.New(fault.Forbidden, fmt.Sprintf("secret %s: Vault refuses the worker's token", r), fault.Field("secret"), fault.Remedy("check the token and its policy"))
	default:
		return "", fault.New(fault.Unavailable, fmt.Sprintf("secret %s: Vault responded with %d", r, response.StatusCode), fault.Field("secret"))
	}
	var answer struct {
		Data struct {
			Data map[string]any `json:"data"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxFile)).Decode(&answer); err != nil {
		return "", fault.New(fault.Unavailable, fmt.Sprintf("secret %s: the response of Vault cannot be read", r), fault.Field("secret"))
	}
	value, isText := answer.Data.Data[field].(string)
	if !isText {
		return "", missing(r, fmt.Sprintf("it has no text field %q", field))
	}
	return value, nil
}
