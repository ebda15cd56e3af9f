# A formula for a tap of one's own. release/render.py fills in what stands between @ and @. In the tap,
# `brew update-python-resources barnabas` then adds a resource for each of the two dependencies, crc32c and uvloop.
class Barnabas < Formula
  include Language::Python::Virtualenv

  desc "Kafka broker in one small process, transactions and all"
  homepage "@HOME@"
  url "@URL@"
  version "@VERSION@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "python@3.13"

  def install
    virtualenv_install_with_resources
  end

  service do
    run [opt_bin/"barnabas", "--data", var/"barnabas"]
    keep_alive crashed: true
    log_path var/"log/barnabas.log"
    error_log_path var/"log/barnabas.log"
  end

  test do
    system bin/"barnabas", "--check", "--temporary"
  end
end
