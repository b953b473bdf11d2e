package cli

import (
	"context"
	"io/fs"
	"path"

	"go.arco.dev/servo/client"
	"go.arco.dev/servo/examples/cloudcost"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/fault"
)

// startCloudcost gives the tenants of the example their pipelines and schedules. What somebody
// has changed since the last start is left as the files say: they are applied as anybody would.
func startCloudcost(ctx context.Context, c *client.Client) error {
	tenants, err := fs.ReadDir(cloudcost.Configs, "configs")
	if err != nil {
		return err
	}
	manifest, err := manifestMessage(cloudcost.Manifest, "servo.yaml")
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		_, err := c.Tenants().CreateTenant(ctx, &servov1.CreateTenantRequest{Name: tenant.Name()})
		if err != nil && !client.Is(err, client.AlreadyExists) {
			return err
		}
		if _, err := c.Deployments().Deploy(ctx, &servov1.DeployRequest{Tenant: tenant.Name(), Manifest: manifest}); err != nil {
			return err
		}
		documents, err := cloudcostConfigs(tenant.Name())
		if err != nil {
			return err
		}
		for _, call := range callsOf(tenant.Name(), documents, "servo dev") {
			if _, err := c.Configs().ApplyConfigs(ctx, call.request); err != nil {
				return inFiles(err, call.documents)
			}
		}
	}
	return nil
}

// cloudcostConfigs are the configs of one tenant of the example.
func cloudcostConfigs(tenant string) ([]document, error) {
	r := &configReader{seen: map[string]string{}}
	dir := path.Join("configs", tenant)
	files, err := fs.ReadDir(cloudcost.Configs, dir)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := fs.ReadFile(cloudcost.Configs, path.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		r.read(file.Name(), data)
	}
	return r.documents, fault.FromViolations(r.found)
}
