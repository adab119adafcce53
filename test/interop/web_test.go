package interop

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/placement"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/wholefile"
	"github.com/fieldgw/fieldgw/test/rig"
)

// The web servers that take files. What they are given lies in the store under its own name.
var (
	apache = peer{
		name:    "Apache mod_dav by http",
		config:  webConfig,
		missing: program("apache2", "/usr/lib/apache2/modules/mod_dav_fs.so"),
		foreign: &rig.Foreign{Command: startApache, Endpoint: underDav},
		// Apache tells no digest.
		grade: receipt.VerifiedDigest, downloads: true,
		readBack: storedAs(func(dir, id string) string { return filepath.Join(dir, "dav", filepath.FromSlash(id)) }),
		driver:   wholeFileDriver, protocol: wholefile.Protocol,
	}
	lighttpd = peer{
		name:    "lighttpd mod_webdav by http",
		config:  webConfig,
		missing: program("lighttpd", "/usr/lib/lighttpd/mod_webdav.so"),
		foreign: &rig.Foreign{Command: startLighttpd, Endpoint: underDav},
		grade:   receipt.VerifiedDigest, downloads: true,
		readBack: storedAs(func(dir, id string) string { return filepath.Join(dir, "dav", filepath.FromSlash(id)) }),
		driver:   wholeFileDriver, protocol: wholefile.Protocol,
	}
)

// nginx stands in front of fieldgw-server: as docs/server.md has it, and as it is without further ado.
var (
	nginxStreams = nginxPeer("fieldgw-server behind nginx, request buffering off", "off")
	nginxBuffers = nginxPeer("fieldgw-server behind nginx, request buffering on", "on")
)

func nginxPeer(name, buffering string) peer {
	p := fieldgwServer
	p.name, p.driver = name, nil
	p.missing = program("nginx", "")
	p.front = func(ctx context.Context, r *rig.Rig, addr string) (*exec.Cmd, error) {
		return startNginx(ctx, r, addr, buffering)
	}
	return p
}

func wholeFileDriver(c *remote.Client) uplink.Driver {
	path, err := placement.Parse(config.Default(nil).Uplink.HTTP.Path)
	if err != nil {
		panic(err)
	}
	return wholefile.New(wholefile.Options{Client: c, Path: &path})
}

func webConfig(string) (string, error) {
	return "driver = \"http\"\naccept_grade = \"verified-digest\"", nil
}

func underDav(addr string) string { return "http://" + addr + "/dav" }

// program says what is missing of a program of the distribution and one of its modules.
func program(name, module string) func(context.Context) string {
	return func(context.Context) string {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed"
		}
		if _, err := os.Stat(module); module != "" && err != nil {
			return module + " is not installed"
		}
		return ""
	}
}

// configured writes a server's configuration beside its store and makes the directory that it serves.
func configured(dir, name, text string) (path string, err error) {
	path = filepath.Join(filepath.Dir(dir), name)
	if err := os.MkdirAll(filepath.Join(dir, "dav"), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// startApache runs one process without children, so that killing it kills the server.
func startApache(ctx context.Context, dir, addr string) (*exec.Cmd, error) {
	text := fmt.Sprintf(`ServerRoot %[1]q
ServerName fieldgw.test
Listen %[2]s
PidFile %[1]s/apache.pid
ErrorLog /dev/stderr
LogLevel crit
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dav_module /usr/lib/apache2/modules/mod_dav.so
LoadModule dav_fs_module /usr/lib/apache2/modules/mod_dav_fs.so
LimitRequestBody 0
DavLockDB %[1]s/locks
DocumentRoot %[1]s
<Directory %[1]s/dav>
Dav On
Require all granted
</Directory>
`, dir, addr)
	if os.Geteuid() == 0 { // it does not serve as root
		text += "User www-data\nGroup www-data\n"
	}
	path, err := configured(dir, "apache.conf", text)
	if err == nil && os.Geteuid() == 0 {
		err = giveTo("www-data", dir, filepath.Join(dir, "dav"))
	}
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, "apache2", "-X", "-f", path), nil
}

// giveTo makes directories somebody's, and the way to them passable.
func giveTo(name string, dirs ...string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.Chown(dir, uid, -1); err != nil {
			return err
		}
	}
	return os.Chmod(filepath.Dir(dirs[0]), 0o711)
}

func startLighttpd(ctx context.Context, dir, addr string) (*exec.Cmd, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	path, err := configured(dir, "lighttpd.conf", fmt.Sprintf(`server.modules = ("mod_webdav")
server.bind = %q
server.port = %s
server.document-root = %q
server.upload-dirs = (%q)
server.max-request-size = 0
webdav.activate = "enable"
`, "127.0.0.1", port, dir, dir))
	return exec.CommandContext(ctx, "lighttpd", "-D", "-f", path), err
}

func startNginx(ctx context.Context, r *rig.Rig, addr, buffering string) (*exec.Cmd, error) {
	dir := r.Path("nginx")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr crit;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	client_max_body_size 0;
	server {
		listen %[2]s ssl;
		ssl_certificate %[3]s/cert.pem;
		ssl_certificate_key %[3]s/key.pem;
		location / {
			proxy_pass %[4]s;
			proxy_http_version 1.1;
			proxy_request_buffering %[5]s;
			proxy_read_timeout 10m;
		}
	}
}
`, dir, addr, r.Path("server", "tls"), r.ServerURL(), buffering)
	if os.Geteuid() == 0 {
		text = "user root;\n" + text
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, "nginx", "-p", dir, "-c", path, "-e", "stderr"), nil
}
