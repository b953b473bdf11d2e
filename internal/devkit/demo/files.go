package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// readManifests makes one manifest of several: a workspace has one active deployment, whatever
// number of teams has written it. The server checks it.
func readManifests(texts ...[]byte) (*structpb.Struct, error) {
	whole := map[string]any{}
	for _, text := range texts {
		var part map[string]any
		if err := yaml.Unmarshal(text, &part); err != nil {
			return nil, fmt.Errorf("read a manifest: %w", err)
		}
		for key, value := range part {
			before, _ := whole[key].([]any)
			if list, ok := value.([]any); ok { // assets, pipelines
				whole[key] = append(before, list...)
			} else {
				whole[key] = value
			}
		}
	}
	return structpb.NewStruct(whole)
}

// readConfigs makes a request for each workspace of the configs in a directory, a file each. Such
// a file is a name, and the fields of the API's ConfigSpec beside it.
func readConfigs(files fs.FS, dir string) ([]*servov1.ApplyConfigsRequest, error) {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil, err
	}
	var requests []*servov1.ApplyConfigsRequest
	byWorkspace := map[string]*servov1.ApplyConfigsRequest{}
	for _, entry := range entries {
		text, err := fs.ReadFile(files, path.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		input, workspace, err := readConfig(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(dir, entry.Name()), err)
		}
		request := byWorkspace[workspace]
		if request == nil {
			request = &servov1.ApplyConfigsRequest{Workspace: workspace}
			byWorkspace[workspace], requests = request, append(requests, request)
		}
		request.Configs = append(request.Configs, input)
	}
	return requests, nil
}

// defaultWorkspace is the workspace of configs that name none.
const defaultWorkspace = "default"

// readConfig reads one config: YAML to the JSON that REST would take.
func readConfig(text []byte) (input *servov1.ConfigInput, workspace string, err error) {
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return nil, "", err
	}
	input, workspace = &servov1.ConfigInput{Spec: &servov1.ConfigSpec{}}, defaultWorkspace
	for key, value := range fields {
		var fits bool
		switch key {
		case "name":
			input.Name, fits = value.(string)
		case "workspace":
			workspace, fits = value.(string)
		case "enabled":
			var on bool
			on, fits = value.(bool)
			input.Enabled = &on
		default:
			continue
		}
		if !fits {
			return nil, "", fmt.Errorf("%s is %v", key, value)
		}
		delete(fields, key)
	}
	if input.GetName() == "" {
		return nil, "", errors.New("name is missing")
	}
	spec, err := json.Marshal(fields)
	if err != nil {
		return nil, "", err
	}
	return input, workspace, protojson.Unmarshal(spec, input.GetSpec())
}
